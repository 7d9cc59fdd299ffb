"""What other users of a machine may try with our temporary folders, and what is left of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgesim.fleet.on_ray import private_folder as module
from edgesim.fleet.on_ray.core_pool import CorePool
from edgesim.fleet.on_ray.private_folder import (
    MARK,
    TemporaryFolderError,
    open_private,
    private_folder,
    remove,
    safe_parent,
    sweep,
)

NOBODY = 65534
HOLDER = """
import sys, time
from pathlib import Path
from edgesim.fleet.on_ray.private_folder import private_folder
with private_folder(Path(sys.argv[1])) as folder:
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder like /tmp, which all users reach; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory(prefix="es-common-", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def as_another_user(program: str, *arguments: Path) -> str:
    """Run a program as a user without rights; Python itself may be where that user can't go."""
    if os.geteuid() != 0:
        pytest.skip("to act as another user needs root")
    become = f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", become + program, *map(str, arguments)],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_private_folder_is_this_users_alone_and_goes_with_all_its_files(common: Path) -> None:
    with private_folder(common) as first, private_folder(common) as second:
        assert first.name != second.name
        assert stat.S_IMODE(first.stat().st_mode) == 0o700
        (first / "below").mkdir()
        (first / "below" / "file").write_text("x")
        (first / "link").symlink_to(common)
    assert names(common) == []
    assert common.is_dir()


def test_another_user_can_neither_read_nor_lock_nor_ring_in_the_folder_of_cores(
    common: Path,
) -> None:
    folder = common / "edgesim-cores"
    pool = CorePool(folder, 2)
    with pool.core():
        attempt = (
            "for name in ('', '/bell', '/queue', '/core-0', '/core-1', '/core-9'):\n"
            "    for mode in (os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT):\n"
            "        try: os.open(sys.argv[1] + name, mode | os.O_NONBLOCK)\n"
            "        except (PermissionError, IsADirectoryError): continue\n"
            "        print(name, mode)\n"
            "for act in (os.rmdir, os.unlink, lambda p: os.rename(p, p + '-'), os.listdir):\n"
            "    try: act(sys.argv[1])\n"
            "    except OSError: continue\n"
            "    print(act)\n"
        )
        assert as_another_user(attempt, folder) == ""
    assert names(folder) == ["bell", "core-0", MARK, "queue"]
    for path in folder.iterdir():
        assert not path.stat().st_mode & module.OF_OTHERS


def test_links_in_a_folder_that_another_user_made_first_lead_nowhere(
    common: Path, tmp_path: Path
) -> None:
    """The worst case, that the name was guessed: a file of the victim's stays as it was."""
    victims = tmp_path / "victims"
    folder = common / "edgesim-cores"
    attack = (
        "os.umask(0); os.mkdir(sys.argv[1], 0o777)\n"
        "for name in ('queue', 'core-0', 'bell', 'of-a-run-of-edgesim'):\n"
        "    os.symlink(sys.argv[2], sys.argv[1] + '/' + name)\n"
    )
    as_another_user(attack, folder, victims)
    with pytest.raises(TemporaryFolderError, match="is not a folder of this user alone") as caught:
        CorePool(folder, 1)
    assert "\n" not in str(caught.value)
    assert not victims.exists()
    sweep(common)
    assert names(folder) == ["bell", "core-0", MARK, "queue"], "nor is it swept"


def test_the_closed_folder_of_another_user_is_neither_used_nor_swept(common: Path) -> None:
    """Root could enter it: its owner could, too, and change what is in it."""
    folder = common / "edgesim-cores"
    as_another_user("os.mkdir(sys.argv[1], 0o700); open(sys.argv[2], 'w')", folder, folder / MARK)
    with pytest.raises(TemporaryFolderError, match="is not a folder of this user alone"):
        open_private(folder)
    sweep(common)
    assert names(folder) == [MARK]


def test_a_folder_that_others_may_enter_a_link_and_a_file_are_refused(
    common: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (common / "edgesim-link").symlink_to(target)
    (common / "edgesim-file").touch()
    (common / "edgesim-open").mkdir(mode=0o755)
    for name in ("edgesim-link", "edgesim-file", "edgesim-open"):
        with pytest.raises(TemporaryFolderError, match=rf"{name} is not a folder of this user"):
            open_private(common / name)
    assert names(target) == []


def test_a_link_among_the_lock_files_is_not_followed(common: Path, tmp_path: Path) -> None:
    pool = CorePool(common / "edgesim-cores", 1)
    (common / "edgesim-cores" / "core-0").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"), pool.core():
        pass
    assert not (tmp_path / "target").exists()


@pytest.fixture
def killed(common: Path) -> Path:
    """The folder of a process that was killed."""
    process, folder = holder(common)
    process.kill()
    process.communicate()
    assert (folder / "below" / "file").exists()
    return folder


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    command = [sys.executable, "-c", HOLDER, str(parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_killed_process_is_swept_and_those_in_use_stay(
    common: Path, killed: Path
) -> None:
    process, in_use = holder(common)
    try:
        with private_folder(common) as own:
            pool = CorePool(common / "edgesim-cores", 1)
            sweep(common)
            assert names(common) == sorted(["edgesim-cores", in_use.name, own.name])
            assert not killed.exists()
            del pool  # as its process ends
            sweep(common)
            assert names(common) == sorted([in_use.name, own.name])
    finally:
        process.kill()
        process.communicate()


def test_what_is_not_marked_is_never_swept(common: Path, killed: Path) -> None:
    """A user's own folder may begin with our name: his results may be in it."""
    results = common / "edgesim-results"
    results.mkdir(mode=0o700)
    (results / "rounds.parquet").touch()
    (common / "edgesim-linked").symlink_to(killed)
    (common / "edgesim-file").touch()
    killed.rename(common / "other-name")
    sweep(common)
    assert names(common) == ["edgesim-file", "edgesim-linked", "edgesim-results", "other-name"]
    assert names(results) == ["rounds.parquet"]


def test_who_opens_a_folder_that_is_swept_meanwhile_makes_it_anew(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run takes the folder for one of a run that has ended, just before it is locked."""
    folder, lock, swept = common / "edgesim-cores", fcntl.flock, []

    def sweep_before_the_first_lock(descriptor: int, operation: int) -> None:
        if not swept:
            swept.append(folder)
            shutil.rmtree(folder)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_before_the_first_lock)
    descriptor = open_private(folder)
    try:
        assert os.path.samestat(os.fstat(descriptor), folder.stat())
    finally:
        os.close(descriptor)
    assert names(folder) == [MARK]


def test_what_can_not_be_removed_in_time_keeps_its_mark(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with private_folder(common) as folder:
        (folder / "below").mkdir()
        monkeypatch.setattr(module.shutil, "rmtree", lambda *_, **__: None)  # it is written to
        remove(folder, timeout_s=0.0)
        assert names(folder) == ["below", MARK]
        monkeypatch.undo()
        remove(folder)
        assert not folder.exists()


@pytest.mark.parametrize(
    ("mode", "is_safe"),
    [
        *((0o700, True), (0o755, True), (0o1777, True), (0o1770, True), (0o3770, True)),
        *((0o2770, False), (0o770, False), (0o720, False), (0o702, False), (0o777, False)),
    ],
)
def test_no_parent_is_a_folder_in_which_others_can_rename(
    common: Path, mode: int, is_safe: bool
) -> None:
    folder = common / "of-a-group"
    folder.mkdir()
    folder.chmod(mode)
    if is_safe:
        assert safe_parent([folder], 200) == folder
    else:
        with pytest.raises(TemporaryFolderError, match="others can rename what is not theirs"):
            safe_parent([folder], 200)


def test_no_parent_is_a_folder_of_another_user(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He can rename what is in it, sticky or not; that of root is as safe as the machine."""
    status, owner = os.stat_result, [NOBODY]
    real = Path.stat

    def stat_of(path: Path, **options: bool) -> os.stat_result:
        found = list(real(path, **options))
        found[stat.ST_UID] = owner[0]
        return status(found)

    monkeypatch.setattr(Path, "stat", stat_of)
    with pytest.raises(TemporaryFolderError, match="others can rename what is not theirs"):
        safe_parent([common], 200)
    owner[0] = 0
    assert safe_parent([common], 200) == common


def test_the_parent_is_the_first_folder_that_will_do(common: Path) -> None:
    unsafe, absent = common / "unsafe", common / "absent"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    long = common / ("d" * 100)
    long.mkdir()
    most = len(os.fsencode(unsafe))
    assert safe_parent([long, unsafe, absent, common], most) == common
    with pytest.raises(TemporaryFolderError) as caught:
        safe_parent([long, unsafe, absent], most)
    message = str(caught.value)
    assert f"{long} has more than {most} bytes" in message
    assert f"in {unsafe} others can rename what is not theirs" in message
    assert "absent can't be written to" in message
    assert "name another folder for temporary files by TMPDIR" in message
    assert "\n" not in message
