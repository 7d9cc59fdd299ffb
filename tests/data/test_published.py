"""Datasets are fetched from a server of this machine, with small files in place of the large."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from data_files import load_dataset, write_cifar, write_idx
from typer.testing import CliRunner

from edgesim.cli import app
from edgesim.data import published
from edgesim.data.errors import DataError
from edgesim.data.published import PUBLISHED, Published, PublishedFile, fetch_published
from edgesim.data.torchvision_compat import torchvision_datasets

RNG = np.random.default_rng(0)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Folder that a server of this machine serves, and its address."""
    folder = tmp_path_factory.mktemp("served")
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def md5(data):
    return hashlib.md5(data).hexdigest()


def served(server, patch, name, files, size=""):
    """Put files on the server under the dataset's name, in the place of the published ones."""
    folder, url = server
    entries = []
    for file_name, data in files.items():
        (folder / file_name).write_bytes(data)
        entries.append(PublishedFile(f"{url}/{file_name}", md5(data)))
    mine = Published(PUBLISHED[name].page, {size: tuple(entries)})
    patch.setitem(published.PUBLISHED, name, mine)


def archive_of(folder):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return buffer.getvalue()


def test_cifar10_is_fetched_unpacked_and_read(server, tmp_path, monkeypatch):
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    batches = {
        n: {"data": RNG.integers(0, 256, (2, 3072), np.uint8), "labels": [1, 2]} for n in names
    }
    batches["batches.meta"] = {"label_names": [f"class {k}" for k in range(10)]}
    write_cifar(tmp_path / "made", torchvision_datasets().CIFAR10, batches, monkeypatch)
    data = archive_of(tmp_path / "made" / "cifar-10-batches-py")
    served(server, monkeypatch, "cifar10", {"cifar-10-python.tar.gz": data})
    told = CliRunner().invoke(app, ["data", "fetch", "cifar10", "--to", str(tmp_path / "cifar")])
    assert told.exit_code == 0, told.output
    assert [path.name for path in (tmp_path / "cifar").iterdir()] == ["cifar-10-batches-py"]
    dataset = load_dataset("cifar10", tmp_path / "cifar")
    assert dataset.train.labels.tolist() == [1, 2] * 5
    again = load_dataset("cifar10", tmp_path / "other", download=True)  # as data.download does
    assert (again.train.images_NHWC == dataset.train.images_NHWC).all()


def test_fashion_mnist_is_fetched_as_it_is_and_not_twice(server, tmp_path, monkeypatch):
    arrays = {
        "train-images-idx3-ubyte": RNG.integers(0, 256, (3, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.arange(3, dtype=np.uint8),
        "t10k-images-idx3-ubyte": RNG.integers(0, 256, (2, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(2, dtype=np.uint8),
    }
    for name, array in arrays.items():
        write_idx(tmp_path / f"{name}.gz", array)
    files = {f"{name}.gz": (tmp_path / f"{name}.gz").read_bytes() for name in arrays}
    served(server, monkeypatch, "fashion_mnist", files)
    lines = []
    fetch_published("fashion_mnist", tmp_path / "fashion", tell=lines.append)
    assert load_dataset("fashion_mnist", tmp_path / "fashion").train.labels.tolist() == [0, 1, 2]
    assert [line.split()[0] for line in lines] == ["fetching"] * 4
    lines.clear()
    fetch_published("fashion_mnist", tmp_path / "fashion", tell=lines.append)
    assert all(line.endswith("is there") for line in lines)
    (tmp_path / "fashion" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    fetch_published("fashion_mnist", tmp_path / "fashion")
    assert load_dataset("fashion_mnist", tmp_path / "fashion").test.labels.tolist() == [0, 1]


def test_another_file_than_the_published_one_is_refused_and_removed(server, tmp_path, monkeypatch):
    served(server, monkeypatch, "fashion_mnist", {"a.gz": b"right"})
    (server[0] / "a.gz").write_bytes(b"wrong")
    with pytest.raises(
        DataError, match=r"a\.gz is not the file that was published .*fashion-mnist"
    ):
        fetch_published("fashion_mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_downloads_at_once_do_not_write_into_one_file(server, tmp_path, monkeypatch):
    """The second one begins when the first has half of the file, and ends before it."""
    data = bytes(range(256)) * 8
    served(server, monkeypatch, "fashion_mnist", {"a.gz": data})
    first = []

    class Slow(io.BytesIO):
        def read(self, size=-1):
            if self.tell() and not first:
                first.append(True)
                fetch_published("fashion_mnist", tmp_path)
            return super().read(min(size, len(data) // 2))

    monkeypatch.setattr(published, "urlopen", lambda *given, **more: Slow(data))
    fetch_published("fashion_mnist", tmp_path)
    assert first
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]
    assert (tmp_path / "a.gz").read_bytes() == data


def test_an_archive_writes_nothing_outside_of_its_folder(server, tmp_path, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("../sprung")
        archive.addfile(member, io.BytesIO())
    served(server, monkeypatch, "cifar100", {"evil.tar.gz": buffer.getvalue()})
    with pytest.raises(DataError, match=r"fetching into .* failed"):
        fetch_published("cifar100", tmp_path / "here")
    assert not (tmp_path / "sprung").exists()


def test_a_missing_file_on_the_server_names_the_way_by_hand(server, tmp_path, monkeypatch):
    gone = Published(PUBLISHED["cifar10"].page, {"": (PublishedFile(f"{server[1]}/no.tgz", "0"),)})
    monkeypatch.setitem(published.PUBLISHED, "cifar10", gone)
    with pytest.raises(DataError, match=r"404.*check the connection.*download no\.tgz from https"):
        fetch_published("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        ("cifar11", "", "there are cifar10, cifar100"),
        ("imagenette", "200px", "it has 160px, 320px, full"),
        ("femnist", "", r"make its JSON files with LEAF.*TalwalkarLab/leaf"),
    ],
)
def test_what_cannot_be_fetched_is_refused(tmp_path, name, size, said):
    with pytest.raises(DataError, match=said):
        fetch_published(name, tmp_path / "new", size)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "fashion_mnist", "imagenette"])
def test_where_files_are_missing_it_is_said_what_to_fetch_from_where(tmp_path, name):
    with pytest.raises(DataError) as caught:
        load_dataset(name, tmp_path / "no", image_size=32)
    first, second = str(caught.value).splitlines()
    assert f"{tmp_path / 'no'} does not exist" in first
    assert f"`edgesim data fetch {name}`" in second
    assert PUBLISHED[name].page in second
    assert str(tmp_path / "no") in second
    some = next(iter(PUBLISHED[name].files.values()))[0]
    assert some.name in second


def test_checksums_are_those_that_torchvision_has():
    datasets = torchvision_datasets()
    wanted = {datasets.CIFAR10.tgz_md5, datasets.CIFAR100.tgz_md5}
    wanted |= {md5 for _, md5 in datasets.FashionMNIST.resources}
    wanted |= {md5 for _, md5 in datasets.Imagenette._ARCHIVES.values()}
    found = {f.md5 for p in PUBLISHED.values() for files in p.files.values() for f in files}
    assert found == wanted
    assert pickle.dumps(PUBLISHED)


def test_a_dataset_that_nobody_knows_is_told_those_that_can_be_fetched(tmp_path):
    with pytest.raises(
        DataError, match="no dataset 'mnist' can be fetched; there are cifar10, "
    ) as caught:
        fetch_published("mnist", tmp_path)
    assert "femnist" not in str(caught.value), "it is made by hand"


def test_an_archive_has_its_place_when_it_is_unpacked_whole(server, tmp_path, monkeypatch):
    """Nobody reads half of the images; what an interrupted attempt has left is replaced."""
    made, folder = tmp_path / "made" / "imagenette2", tmp_path / "to"
    made.mkdir(parents=True)
    for name in ("a", "b"):
        (made / name).write_text(name)
    served(server, monkeypatch, "imagenette", {"imagenette2.tgz": archive_of(made)})
    (folder / "imagenette2").mkdir(parents=True)
    (folder / "imagenette2" / "left").touch()
    unpack_one = tarfile.TarFile._extract_one
    interrupts, seen = [True], []

    def watch(self, member, *given, **more):
        unpack_one(self, member, *given, **more)
        seen.append(sorted(path.name for path in (folder / "imagenette2").iterdir()))
        if interrupts and member.name.endswith("a"):
            raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "_extract_one", watch)
    with pytest.raises(KeyboardInterrupt):
        fetch_published("imagenette", folder)
    assert sorted(path.name for path in folder.iterdir()) == ["imagenette2", "imagenette2.tgz"]
    interrupts.clear()
    fetch_published("imagenette", folder)
    assert seen
    assert all(names == ["left"] for names in seen)
    assert [path.name for path in folder.iterdir()] == ["imagenette2"]
    assert sorted(path.name for path in (folder / "imagenette2").iterdir()) == ["a", "b"]


def test_an_archive_that_another_process_unpacks_at_once_is_no_error(server, tmp_path, monkeypatch):
    made, folder = tmp_path / "made" / "imagenette2", tmp_path / "to"
    made.mkdir(parents=True)
    (made / "a").write_text("a")
    served(server, monkeypatch, "imagenette", {"imagenette2.tgz": archive_of(made)})
    rename, others = Path.rename, [folder / "imagenette2"]

    def come_before(self, target):
        if target in others:
            others.remove(target)
            fetch_published("imagenette", folder)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", come_before)
    (top,) = fetch_published("imagenette", folder)
    assert [path.name for path in folder.iterdir()] == ["imagenette2"]
    assert (top / "a").read_text() == "a"
