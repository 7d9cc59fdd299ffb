"""Tokenizers and encoders of the Hugging Face hub: where they are on disk, and their library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from edgesim.data.errors import DataError
from edgesim.data.torchvision_compat import torchvision_datasets
from edgesim.program import pip_install

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)


@cache
def transformers() -> ModuleType:
    """The package transformers, which says nothing but errors from now on.

    Raises:
        DataError: it is not installed.
    """
    if find_spec("transformers") is None:
        raise DataError(
            "texts of the Hugging Face hub need the package transformers, which is not installed; "
            f"install it: {pip_install('transformers')}"
        )
    torchvision_datasets()  # transformers imports torchvision, which may lack operators
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    library: ModuleType = transformers
    return library


def folder_of(name: str, *, download: bool) -> Path:
    """The folder with the files of a tokenizer or an encoder.

    Args:
        name: of the hub, or the absolute path of a folder.
        download: fetch the files if they are not on disk.

    Raises:
        DataError: they are not there; or transformers is not installed.
    """
    if Path(name).is_absolute():
        if not Path(name).is_dir():
            raise DataError(
                f"{name} is no folder; give one with the files of a Hugging Face model, or its name"
            )
        return Path(name)
    transformers()
    from huggingface_hub import snapshot_download

    if not _NAME.fullmatch(name):
        raise DataError(
            f"{name!r} is no name of the Hugging Face hub; give one, or a folder as ./folder"
        )
    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=_FILES))
    except (OSError, ValueError) as missing:
        if not download:
            raise DataError(
                f"{name} is neither a folder nor in the cache of the Hugging Face hub on this "
                "machine; set download: true beside it to fetch it, or put its files into a "
                "folder by hand and give ./folder"
            ) from missing
    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name} can't be fetched from the Hugging Face hub ({_first_line(error)}); check the "
            "name and the connection, or put its files into a folder by hand and give ./folder"
        ) from error


def digest_of(folder: Path, names: Sequence[str]) -> str:
    """Digest of some files of a folder; those that are not there are left out."""
    digest = blake2b(digest_size=16)
    for name in names:
        path = folder / name
        if path.is_file():
            digest.update(f"{name} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
