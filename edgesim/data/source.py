"""Sources of data: the protocol, well-known datasets, and folders in a known format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgesim.data.errors import DataError, MissingFilesError
from edgesim.data.images import Splits, Statistics
from edgesim.data.published import fetch_hint
from edgesim.data.shape import DataShape

_MOST_LISTED = 5  # names in a message

Reader = Callable[[Path, int | None], Splits | None]
"""Reads a folder and resizes its images; None if the folder holds no files of the format."""


class Source(Protocol):
    """Where a dataset comes from."""

    @property
    def description(self) -> str:
        """One line for `edgesim list datasets`."""
        ...

    @property
    def statistics(self) -> Statistics | None:
        """Published mean and deviation of the channels.

        None if they are computed from the images.
        """
        ...

    @property
    def published_shape(self) -> DataShape | None:
        """Sizes as published; None where only the files can tell."""
        ...

    @property
    def sizes_differ(self) -> bool:
        """Whether images differ in size, so that a model needs `data.image_size`."""
        ...

    def load(self, path: Path | None, *, image_size: int | None, download: bool) -> Splits:
        """Open both splits; images are read when they are needed.

        Args:
            path: folder with the files; None for the default folder of the source, if it has one.
            image_size: side in pixels to bring images to; None: as they are.
            download: fetch the files into `path` if they are not there.

        Raises:
            DataError: the files are missing, broken or of another kind.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """A user's own dataset in a format that any folder can have.

    Attributes:
        description: one line.
        expects: what the folder must hold, for messages.
        read: reads it.
        owners: where it says whose a sample is, for `edgesim list datasets NAME`.
    """

    description: str
    expects: str
    read: Reader
    owners: str
    statistics: None = None
    published_shape: None = None
    sizes_differ: bool = False

    def load(self, path: Path | None, *, image_size: int | None, download: bool) -> Splits:
        """Read both splits; see `Source.load`."""
        if download:
            raise DataError("data.download: only named datasets can be fetched; remove it")
        folder = existing_folder(path, self.expects)
        return self.read(folder, image_size) or _refuse(folder, self.expects)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSource:
    """A well-known dataset, read from its original files or from Parquet files.

    Attributes:
        description: one line.
        expects: what the folder must hold, for messages.
        read_original: reads the original files.
        read_parquet: reads them from Parquet files in the Hugging Face layout.
        fetch: downloads the original files into a folder, in the size asked for if there are
            several.
        default_path: folder to look in, where it exists, when none is given.
        statistics: published mean and deviation of the channels.
        published_shape: sizes as published.
        sizes_differ: images differ in size.
        published: its name in `edgesim.data.published`; None where it has none.
    """

    description: str
    expects: str
    read_original: Reader
    read_parquet: Reader
    fetch: Callable[[Path, int | None], None]
    default_path: Path | None = None
    statistics: Statistics | None = None
    published_shape: DataShape | None = None
    sizes_differ: bool = False
    published: str | None = None

    def load(self, path: Path | None, *, image_size: int | None, download: bool) -> Splits:
        """Read both splits; see `Source.load`."""
        try:
            return self._load(path, image_size=image_size, download=download)
        except MissingFilesError as error:
            if self.published is None:
                raise
            hint = fetch_hint(self.published, str(path or "a folder"))
            raise MissingFilesError(f"{error}\n{hint}") from error

    def _load(self, path: Path | None, *, image_size: int | None, download: bool) -> Splits:
        expects = f"{self.expects}, or train*.parquet and test*.parquet"
        folder = path or self._default_folder()
        if folder is None or not download:
            folder = existing_folder(folder, expects)
        splits = self._read_any(folder, image_size)
        if splits is None and download:
            self._fetch(folder, image_size)
            splits = self._read_any(folder, image_size)
        return splits or _refuse(folder, expects)

    def _default_folder(self) -> Path | None:
        default = self.default_path
        return default if default is not None and default.is_dir() else None

    def _read_any(self, folder: Path, image_size: int | None) -> Splits | None:
        return self.read_original(folder, image_size) or self.read_parquet(folder, image_size)

    def _fetch(self, folder: Path, image_size: int | None) -> None:
        try:
            self.fetch(folder, image_size)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"data.download: fetching into {folder} failed ({error}); "
                "check the connection and the folder, or put the files there by hand"
            ) from error


def existing_folder(path: Path | None, expects: str) -> Path:
    """The folder to read.

    Raises:
        MissingFilesError: none is given, or it is no folder.
    """
    if path is None:
        raise MissingFilesError(f"data.path is missing; give a folder with {expects}")
    if not path.exists():
        raise MissingFilesError(f"data.path: {path} does not exist; give a folder with {expects}")
    if not path.is_dir():
        raise MissingFilesError(f"data.path: {path} is not a folder; give a folder with {expects}")
    return path


def _refuse(folder: Path, expects: str) -> Splits:
    """Refuse a folder, with what it needs and what it holds.

    Raises:
        MissingFilesError: always.
    """
    names = sorted(
        f"{path.name}/" if path.is_dir() else path.name
        for path in folder.iterdir()
        if not path.name.startswith(".")
    )
    more = len(names) - _MOST_LISTED
    holds = ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
    raise MissingFilesError(
        f"data.path: {folder} lacks what this data.source needs: {expects}; it holds "
        f"{holds or 'nothing'}"
    )
