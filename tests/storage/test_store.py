"""A store keeps whole files, whoever writes at the same time, and says in a line what is wrong."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgesim.program import pip_install
from edgesim.storage import files as stored_files
from edgesim.storage.files import STALE_S
from edgesim.storage.store import MOVED_AT_ONCE, StorageError, Store


def listing(folder: Path) -> list[str]:
    """All names in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store.at("~/run").path == tmp_path / "run"
    assert Store.at(Path("~")).path == tmp_path
    assert Store.at("~run").path == Path.cwd() / "~run"


def test_what_is_written_is_read_back(store):
    for data in (b"", b"one", bytes(range(256)) * 1000):
        store.write("folder/name.bin", data)
        assert store.read("folder/name.bin") == data


def test_what_is_written_piece_by_piece_appears_at_the_end(store):
    with store.writer("table") as file:
        file.write(b"first, ")
        assert not store.exists("table")
        file.write(b"second")
    assert store.read("table") == b"first, second"


def test_a_writer_that_fails_leaves_what_was_there(store):
    store.write("table", b"before")

    def write_half() -> None:
        with store.writer("table") as file:
            file.write(b"half")
            raise KeyError("midway")

    with pytest.raises(KeyError, match="midway"):
        write_half()
    assert store.read("table") == b"before"
    assert store.names("*") == ["table"]


def test_names_match_patterns_part_by_part_and_are_sorted(store):
    for name in ("b/x-2", "b/x-1", "b/y-1", "a/x-3", "top", "b/deep/x-4"):
        store.write(name, b"1")
    assert store.names("b/x-*") == ["b/x-1", "b/x-2"]
    assert store.names("*/x-?") == ["a/x-3", "b/x-1", "b/x-2"]
    assert store.names("*") == ["top"]
    assert store.names("b/deep/*") == ["b/deep/x-4"]
    assert store.names("b/*/x-*") == ["b/deep/x-4"]
    assert store.names("nothing/*") == []
    assert store.names("top") == ["top"]
    assert store.child("b").names("x-*") == ["x-1", "x-2"]


def test_files_are_moved_and_removed(store):
    for name in ("a/1", "a/2", "b/1"):
        store.write(name, name.encode())
    store.move({"a/1": "c/new"})
    assert store.read("c/new") == b"a/1"
    assert store.names("*/*") == ["a/2", "b/1", "c/new"]
    store.delete(["a/2", "a/gone"])
    store.delete([])
    assert store.names("*/*") == ["b/1", "c/new"]
    for _ in range(2):  # what is gone already is no error
        store.delete_tree("c")
        assert store.names("*/*") == ["b/1"]


def test_a_file_without_a_name_to_move_is_an_error_and_one_moved_before_is_none(store):
    store.write("a", b"1")
    for _ in range(2):  # as after an interruption
        if store.is_local:
            store.move({"a": "b"})
    with pytest.raises(StorageError, match="moved"):
        store.move({"missing": "c"})


def test_moving_many_files_brings_their_folder_to_disk_a_few_times(tmp_path, monkeypatch):
    """A fleet of ten thousand moves as many models at its end."""
    store = Store.at(tmp_path)
    (tmp_path / "to").mkdir()
    new_names = {f"from/{n}": f"to/{n}" for n in range(MOVED_AT_ONCE + 1)}
    for name in new_names:
        store.write(name, name.encode(), durable=False)
    synced = []
    monkeypatch.setattr(stored_files, "_sync_folder", synced.append)
    store.move(new_names)
    assert synced == [tmp_path / "to"] * 2
    assert {name: store.read(new) for name, new in new_names.items()} == {
        name: name.encode() for name in new_names
    }
    assert store.names("from/*") == []


def test_a_folder_is_no_file(store):
    store.write("folder/file", b"1")
    assert store.exists("folder/file")
    assert not store.exists("folder")
    assert not store.exists("other")


def test_a_store_is_free_until_something_is_in_it(store):
    assert store.is_free()
    store.write("folder/file", b"1")
    assert not store.is_free()
    store.delete_tree("folder")
    assert store.names("*/*") == []


def test_a_store_can_be_sent_to_other_processes(store):
    store.write("name", b"1")
    again = pickle.loads(pickle.dumps(store.child("folder")))
    again.make()
    again.write("other", b"2")
    assert again.url == f"{store.url}/folder"
    assert store.read("folder/other") == b"2"


def test_what_others_wrote_meanwhile_is_seen(store):
    """No listing is remembered: recovery depends on them."""
    other = Store.at(store.url)
    for number in range(3):
        other.write(f"folder/{number}", b"1")
        assert store.names("folder/*") == [f"folder/{k}" for k in range(number + 1)]
        assert store.exists(f"folder/{number}")
    other.delete(["folder/1"])
    assert store.names("folder/*") == ["folder/0", "folder/2"]
    assert not store.exists("folder/1")


def test_a_missing_file_is_an_error_with_its_name(store):
    with pytest.raises(StorageError, match=r"store/gone: can't be read .*; see that .* or bring"):
        store.read("gone")


def test_threads_that_write_one_file_leave_one_of_theirs(store):
    contents = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda data: store.write("same", data), contents):
            assert store.read("same") in contents
    assert store.names("*") == ["same"]


def _write_often(url: str, byte: int) -> None:
    store = Store.at(url)
    for _ in range(12):
        store.write("same", bytes([byte]) * 50_000, durable=False)


def test_processes_that_write_one_file_leave_one_of_theirs(tmp_path):
    store = Store.at(tmp_path)
    store.write("same", b"")
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_often, args=(store.url, byte)) for byte in (1, 2)]
    for writer in writers:
        writer.start()
    seen = {b""}
    while any(writer.is_alive() for writer in writers):
        seen.add(store.read("same"))
        assert set(store.names("*")) <= {"same"}
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen <= {b"", b"\1" * 50_000, b"\2" * 50_000}
    assert listing(tmp_path) == ["same"]


class TestFoldersOfThisMachine:
    def test_paths_and_file_uris_are_the_same_place(self, tmp_path):
        for place in (tmp_path, str(tmp_path), f"file://{tmp_path}", f"local://{tmp_path}"):
            assert Store.at(place).path == tmp_path
        store = Store.at(tmp_path)
        assert Store.at(store) is store

    def test_a_path_is_meant_from_here_wherever_it_is_sent(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        store = Store.at("relative")
        monkeypatch.chdir("/")
        assert store.path == tmp_path / "relative"

    def test_elsewhere_has_no_path(self):
        with pytest.raises(StorageError, match=r"^memory://a: is no folder of this machine"):
            _ = Store.at("memory://a").path

    def test_unfinished_files_of_the_dead_are_unseen_and_swept(self, tmp_path):
        """A writer is killed in the middle; another one, alive, is left alone."""
        store = Store.at(tmp_path)
        code = (
            "import os, signal; from edgesim.storage.store import Store\n"
            f"with Store.at({str(tmp_path)!r}).writer('folder/table') as file:\n"
            "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
        (left,) = (tmp_path / "folder").iterdir()
        assert left.read_bytes() == b"half"
        assert store.names("folder/*") == []
        with store.writer("folder/mine") as file:
            store.sweep()
            assert not left.exists()
            file.write(b"whole")
        assert store.names("folder/*") == ["folder/mine"]

    def test_unfinished_files_of_other_machines_are_swept_when_old(self, tmp_path):
        old, young = (tmp_path / f".table.1-{thread}@elsewhere.tmp" for thread in (1, 2))
        for path in (old, young):
            path.write_bytes(b"half")
        past = time.time() - 2 * STALE_S
        os.utime(old, (past, past))
        (tmp_path / ".hidden.tmp").write_bytes(b"somebody's")
        Store.at(tmp_path).sweep()
        assert listing(tmp_path) == [".hidden.tmp", young.name]

    def test_a_folder_that_was_removed_is_not_made_again(self, tmp_path):
        store = Store.at(tmp_path / "gone")
        for name in ("name", "folder/name"):
            with pytest.raises(
                StorageError, match=r"No such file or directory.*; see that the fol"
            ):
                store.write(name, b"1")
        assert not (tmp_path / "gone").exists()

    def test_a_file_in_the_place_of_the_folder_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        store = Store.at(tmp_path / "file")
        assert not store.is_free()
        for act in (store.make, lambda: store.write("name", b"1"), lambda: store.names("*")):
            with pytest.raises(StorageError, match=r"file.*: can't be (made|written|listed) \("):
                act()
        assert (tmp_path / "file").read_text() == "mine"
        with pytest.raises(StorageError, match=r"can't be listed .*a file stands where a folder"):
            Store.at(tmp_path / "file" / "below").is_free()

    def test_a_folder_that_may_not_be_looked_into_is_not_taken_for_empty(
        self, tmp_path, monkeypatch
    ):
        """As root may look everywhere, the system's refusal is played."""

        def refuse(*_args, **_options):
            raise PermissionError(errno.EACCES, "Permission denied")

        store = Store.at(tmp_path)
        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(StorageError) as caught:
            store.names("*")
        monkeypatch.undo()
        assert str(caught.value) == (
            f"{tmp_path}: can't be listed (Permission denied); see to permissions there"
        )


FULL = (errno.ENOSPC, "No space left on device; make room there")
QUOTA = (errno.EDQUOT, "make room there: a quota is used up")
READ_ONLY = (errno.EROFS, "Read-only file system; it is read-only: choose another place")


@pytest.mark.parametrize(("number", "said"), [FULL, QUOTA, READ_ONLY])
@pytest.mark.parametrize("at", ["fsync", "open"])
def test_a_place_that_refuses_keeps_what_it_had(tmp_path, monkeypatch, number, said, at):
    store = Store.at(tmp_path)
    store.write("name", b"before")

    def refuse(*_args, **_options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if at == "fsync":
            patch.setattr(os, "fsync", refuse)
        else:
            patch.setattr(Path, "open", refuse)
        with pytest.raises(StorageError) as caught:
            store.write("name", b"after")
    assert str(caught.value).startswith(f"{tmp_path}/name: can't be written (")
    assert said.split("; ")[-1] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert listing(tmp_path) == ["name"]
    assert store.read("name") == b"before"


def test_a_full_disk_keeps_what_it_had(tiny_disk):
    store = Store.at(tiny_disk)
    store.write("name", b"before")
    with pytest.raises(StorageError, match=r"\(No space left on device\); make room there$"):
        store.write("name", bytes(2**20))
    assert store.read("name") == b"before"
    assert listing(tiny_disk) == ["name"]
    store.write("name", b"after")
    assert store.read("name") == b"after"


def test_a_read_only_disk_is_said_to_be_one(tiny_disk):
    store = Store.at(tiny_disk)
    store.write("name", b"before")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    for act in (
        lambda: store.write("name", b"after"),
        lambda: store.delete(["name"]),
        lambda: store.child("new").make(),
    ):
        with pytest.raises(StorageError, match=r"Read-only file system\); it is read-only: choose"):
            act()
    assert store.read("name") == b"before"


class TestPlacesThatCannotBeUsed:
    def test_a_bucket_that_is_not_there(self, bucket):
        store = Store.at("s3://no-such-bucket/run")
        with pytest.raises(StorageError, match=r"^s3://no-such-bucket/run/name: can't be written "):
            store.write("name", b"1")
        with pytest.raises(StorageError, match="see that the folder or bucket exists"):
            store.write("name", b"1")

    def test_a_store_that_does_not_answer(self, bucket, monkeypatch):
        """Errors of the driver's own types are told in a line, too."""
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises(StorageError) as caught:
            Store.at(f"{bucket}/run").read("name")
        assert str(caught.value).startswith(f"{bucket}/run/name: can't be read (")
        assert "\n" not in str(caught.value)

    def test_a_protocol_that_nobody_knows(self):
        with pytest.raises(StorageError, match=r"^nope://x: can't be used .*not known: nope"):
            Store.at("nope://x")

    def test_a_lost_slash(self):
        """It would be a local folder that is called `s3:`."""
        with pytest.raises(StorageError, match=r"^s3:/bucket/run: .* write s3://bucket/run$"):
            Store.at("s3:/bucket/run")
        assert Store.at("file:///x/run").is_local
        assert Store.at("c:/x").is_local

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("s3://bucket/run", f"install it: {pip_install('s3fs')}"),
            ("gs://bucket/run", "fsspec says: Please install gcsfs to access Google Storage"),
        ],
    )
    def test_a_package_that_is_not_installed(self, url, said):
        """An entry of None makes Python say that there is no such module."""
        code = (
            "import sys; sys.modules |= {'s3fs': None, 'gcsfs': None}\n"
            "from edgesim.storage.store import StorageError, Store\n"
            f"try: Store.at({url!r})\n"
            "except StorageError as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        wanted = f"{url}: {url[:5]} needs a package that is not installed; {said}"
        assert done.stdout.decode().strip() == wanted


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b-1", "c.x"]), min_size=1, max_size=3).map(
            lambda parts: "/".join([*parts, "file"])
        ),
        st.binary(max_size=20),
        max_size=6,
    )
)
def test_memory_and_folders_are_alike(tmp_path_factory, files):
    folder = Store.at(tmp_path_factory.mktemp("store"))
    memory = Store.at(f"memory://{folder.path.name}-{time.monotonic_ns()}")
    for name, data in files.items():
        for store in (folder, memory):
            store.write(name, data, durable=False)
    for pattern in ("*", "*/*", "a/*", "*/*/*", "a/*/*", "a/b-1/*/file", "*/?-*/file"):
        assert folder.names(pattern) == memory.names(pattern)
    for name in files:
        assert folder.read(name) == memory.read(name) == files[name]
