"""A folder that can't be read is told as such; it is not taken for an empty one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from data_files import load_dataset
from PIL import Image

from edgesim.data.errors import DataError
from edgesim.data.folders import files_below, files_in

LOCKED = "attic"


@pytest.fixture
def locked(monkeypatch):
    """Folders of the name LOCKED can't be listed, whoever runs the tests."""

    def locking(lists):
        def list_or_fail(place="."):
            if Path(place).name == LOCKED:
                raise PermissionError(13, "Permission denied", str(place))
            return lists(place)

        return list_or_fail

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, locking(getattr(os, name)))


def image_folder(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)
    for split in ("train", "test"):
        for name in ("cat/1.png", f"cat/{LOCKED}/2.png", "dog/3.png"):
            path = tmp_path / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return tmp_path


def test_a_locked_folder_of_images_is_named(tmp_path, locked):
    """Its images were left out without a word."""
    folder = image_folder(tmp_path)
    with pytest.raises(DataError) as refused:
        load_dataset("image_folder", folder)
    assert str(refused.value) == (
        f"data.path: {folder}/train/cat/{LOCKED} can't be read (Permission denied); check it and "
        "its permissions"
    )


def test_the_same_folder_can_be_read_where_it_is_not_locked(tmp_path):
    assert len(load_dataset("image_folder", image_folder(tmp_path)).train) == 3


def test_a_locked_folder_of_parquet_files_is_named(tmp_path, locked):
    folder = tmp_path / LOCKED
    folder.mkdir()
    with pytest.raises(DataError, match=f"{LOCKED} can't be read"):
        load_dataset("parquet", folder)


def test_no_folder_has_no_files(tmp_path):
    (tmp_path / "1.json").touch()
    (tmp_path / "2.txt").touch()
    assert files_in(tmp_path, ".json") == [tmp_path / "1.json"]
    assert files_in(tmp_path / "none", ".json") == []


def test_hidden_files_and_folders_are_left_out_and_the_rest_is_in_order(tmp_path):
    names = ["b/1", "a/c/2", "3", ".hidden", ".trash/4", "a/.trash/5"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    found = [path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path)]
    assert found == ["3", "a/c/2", "b/1"]
