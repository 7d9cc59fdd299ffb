"""Datasets in the files that their authors publish: where they are, and how they are fetched.

A file is used only if its checksum is the published one. It is kept under a temporary name until
then. Archives are unpacked by Python's filter `data`, which refuses paths outside of the folder.

Sources of addresses and checksums: the authors' pages, and torchvision 0.28, datasets/cifar.py,
mnist.py and imagenette.py.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from urllib.request import urlopen

from edgesim.data.errors import DataError

TIMEOUT_S = 60.0  # without a byte
CHUNK = 1 << 20  # bytes read at a time

Told = Callable[[str], None]
"""Called with a line on each file."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file on the network.

    Attributes:
        url: its address.
        md5: its checksum, as published.
    """

    url: str
    md5: str

    @property
    def name(self) -> str:
        """Last part of the address."""
        return Path(urlsplit(self.url).path).name

    @property
    def is_archive(self) -> bool:
        """Whether it is unpacked."""
        return self.name.endswith((".tgz", ".tar.gz"))


@dataclass(frozen=True, slots=True)
class Published:
    """What a dataset's authors publish.

    Attributes:
        page: where they describe it.
        files: by size where there are several sizes, else under "".
        by_hand: what to do where no program can fetch it; empty where one can.
    """

    page: str
    files: Mapping[str, tuple[PublishedFile, ...]]
    by_hand: str = ""

    def remedy(self, folder: str) -> str:
        """What to download, from where, and where to put it."""
        if self.by_hand:
            return f"{self.by_hand} ({self.page}), and put them into {folder}"
        names = " or ".join(", ".join(f.name for f in files) for files in self.files.values())
        unpacked = any(f.is_archive for files in self.files.values() for f in files)
        do = "unpack it in" if unpacked else "put them into"
        return f"download {names} from {self.page} and {do} {folder}"


_TORONTO, _AMAZON = "https://www.cs.toronto.edu/~kriz", "https://s3.amazonaws.com/fast-ai-imageclas"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_LEAF = "https://github.com/TalwalkarLab/leaf"

PUBLISHED: dict[str, Published] = {
    "cifar10": Published(
        f"{_TORONTO}/cifar.html",
        {
            "": (
                PublishedFile(
                    f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"
                ),
            )
        },
    ),
    "cifar100": Published(
        f"{_TORONTO}/cifar.html",
        {
            "": (
                PublishedFile(
                    f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"
                ),
            )
        },
    ),
    "fashion_mnist": Published(
        "https://github.com/zalandoresearch/fashion-mnist",
        {
            "": tuple(
                PublishedFile(f"{_FASHION}/{name}.gz", md5)
                for name, md5 in (
                    ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                    ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe"),
                    ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79"),
                    ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310"),
                )
            )
        },
    ),
    "imagenette": Published(
        "https://github.com/fastai/imagenette",
        {
            size: (PublishedFile(f"{_AMAZON}/{name}.tgz", md5),)
            for size, name, md5 in (
                ("160px", "imagenette2-160", "e793b78cc4c9e9a4ccc0c1155377a412"),
                ("320px", "imagenette2-320", "3df6f0d01a2c9592104656642f5e78a3"),
                ("full", "imagenette2", "fe2fc210e6bb7c5664d602c3cd71e612"),
            )
        },
    ),
    **dict.fromkeys(
        ("femnist", "shakespeare"),
        Published(
            _LEAF, {}, "make its JSON files with LEAF: ./preprocess.sh -s niid --sf 1.0 -t sample"
        ),
    ),
}
"""Datasets by their names in scenarios."""


def fetch_hint(name: str, folder: str) -> str:
    """What to do if a dataset's files are missing."""
    by_program = f"`edgesim data fetch {name}` does it with a network, or "
    return f"{'' if PUBLISHED[name].by_hand else by_program}{PUBLISHED[name].remedy(folder)}"


def fetcher(name: str) -> Callable[[Path, int | None], None]:
    """Downloader of a dataset that comes in one size."""

    def fetch(folder: Path, _image_size: int | None) -> None:
        fetch_published(name, folder)

    return fetch


def fetch_published(
    name: str, folder: Path, size: str = "", tell: Told = lambda _: None
) -> list[Path]:
    """Download the files of a dataset into a folder, check them, and unpack archives there.

    Files that are there with the right checksum are not fetched again; archives are removed once
    they are unpacked.

    Args:
        name: a key of `PUBLISHED`.
        folder: made if it is missing.
        size: of a dataset that comes in several; "" for the first.
        tell: called with a line on each file.

    Returns:
        The files, and the folders of archives.

    Raises:
        DataError: there is no such dataset or size, a file can't be fetched, or it is another than
            the published one.
    """
    if name not in PUBLISHED:
        there = ", ".join(name for name, found in PUBLISHED.items() if not found.by_hand)
        raise DataError(f"no dataset {name!r} can be fetched; there are {there}")
    published = PUBLISHED[name]
    if published.by_hand:
        raise DataError(f"{name} can't be fetched: {published.remedy(str(folder))}")
    size = size or next(iter(published.files))
    if size not in published.files:
        sizes = ", ".join(filter(None, published.files)) or "one size only"
        raise DataError(f"{name} has no size {size!r}; it has {sizes}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_fetch(file, folder, published, tell) for file in published.files[size]]
    except (OSError, HTTPException, tarfile.TarError) as error:
        raise DataError(
            f"{name}: fetching into {folder} failed ({error}); "
            f"check the connection and the folder, or {published.remedy(str(folder))}"
        ) from error


def _fetch(file: PublishedFile, folder: Path, published: Published, tell: Told) -> Path:
    """One file of a dataset; returns what is there afterwards."""
    path = folder / file.name
    if path.is_file() and _md5(path) == file.md5:
        tell(f"{path} is there")
    else:
        tell(f"fetching {file.url}")
        _download(file, path, published)
    if not file.is_archive:
        return path
    top = _unpack(path, folder)
    path.unlink(missing_ok=True)  # another process may have
    tell(f"unpacked {top}")
    return top


def _unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive, whose files have their places only when all are there; returns its top."""
    with (
        tarfile.open(path) as archive,
        TemporaryDirectory(prefix=".unpacking-", dir=folder) as aside,
    ):
        archive.extractall(new := Path(aside, "new"), filter="data")
        tops = sorted(new.iterdir()) if new.is_dir() else []
        for top in tops:
            place = folder / top.name
            with suppress(FileNotFoundError):  # else it is there, maybe in part
                place.rename(Path(aside, top.name))
            try:
                top.rename(place)
            except OSError:  # another process has just unpacked it
                if not place.exists():
                    raise
    return folder / tops[0].name if tops else folder


def _download(file: PublishedFile, path: Path, published: Published) -> None:
    """Download a file; it has its name only if it is the published one."""
    # Of this call alone: another process may fetch the same file.
    part = path.with_name(f"{path.name}.{token_hex(4)}.part")
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with urlopen(file.url, timeout=TIMEOUT_S) as answer, part.open("wb") as target:  # noqa: S310
            while chunk := answer.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
        if digest.hexdigest() != file.md5:
            raise DataError(
                f"{file.url} is not the file that was published (MD5 {digest.hexdigest()}, must be "
                f"{file.md5}); get it from {published.page}"
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
