"""Interrupted run directories, damaged in all ways, are gone on with to the same bits or refused.

Refused by one error of at most two lines that names a file or a folder of the run.
"""

from __future__ import annotations

import random
import re
import shutil

import tiny_runs

from edgesim.errors import EdgesimError

NUM_IN_TESTS = 14


def _remove(path, chance):
    path.unlink()


def _remove_folder(path, chance):
    shutil.rmtree(path.parent)


def _truncate(path, chance):
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) + 1)])


def _extend(path, chance):
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.randint(1, 100)))


def _flip(path, chance):
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _overwrite(path, chance):
    path.write_bytes(chance.choice([b"", b"PK\x03\x04", b"PAR1", b"{}", b"null", bytes(100)]))


def _make_folder(path, chance):
    path.unlink()
    path.mkdir()
    if chance.random() < 0.5:
        (path / "something").write_text("mine")


def _link_to_nowhere(path, chance):
    path.unlink()
    path.symlink_to(chance.choice(["nowhere", path.name, "/dev/null", "/"]))


def _rename(path, chance):
    path.rename(path.with_name(chance.choice([f"{path.name}.bak", f"a-{path.name}", "round-abc"])))


def _copy_under_foreign_names(path, chance):
    stem = path.name.split("-")[0]
    for name in (f"{stem}-abc{path.suffix}", f"{stem}-7{path.suffix}", f"copy of {path.name}"):
        if not (path.parent / name).exists():
            shutil.copy(path, path.parent / name)


def _copy_to_another_number(path, chance):
    number = chance.choice(["000000000", "000000002", "000000005", "000000123"])
    name = re.sub(r"\d{9}", number, path.name)
    if name != path.name:
        shutil.copy(path, path.with_name(name))


def _swap(path, chance):
    others = [other for other in _files(path.parent) if other.suffix == path.suffix]
    other = chance.choice(others)
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


DAMAGES = (
    *(_remove, _remove, _remove_folder, _truncate, _extend, _flip, _flip, _overwrite),
    *(_make_folder, _link_to_nowhere, _rename, _copy_under_foreign_names),
    *(_copy_to_another_number, _swap),
)


def _files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _put_in_anothers(path, chance, place, kind):
    """A file of this name or kind, of a run with another seed or interrupted elsewhere."""
    seed, eighths = chance.choice([(6, 6), (6, 3), (5, 5), (5, 7)])
    other = tiny_runs.interrupted(kind, eighths, 0, chance.choice([1, 2]), seed)
    same_name = other / path.relative_to(place)
    same_kind = [p for p in _files(other) if p.suffix == path.suffix] or _files(other)
    shutil.copy(same_name if same_name.is_file() else chance.choice(same_kind), path)


def damage(place, kind, chance):
    """Damage a run's directory; says how."""
    done = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        files = _files(place)
        if not files:
            break
        # Each kind of file as often as the others, however many there are.
        folders = sorted({path.relative_to(place).parts[0] for path in files})
        chosen = chance.choice(folders)
        path = chance.choice([p for p in files if p.relative_to(place).parts[0] == chosen])
        if chance.random() < 0.15:
            _put_in_anothers(path, chance, place, kind)
            done.append(f"another run's {path.relative_to(place)}")
            continue
        do = chance.choice(DAMAGES)
        if do is _remove_folder and path.parent == place:
            do = _remove
        do(path, chance)
        done.append(f"{do.__name__} {path.relative_to(place)}")
    return done


def check(seed, resume=tiny_runs.resumed):
    """One directory, damaged in some ways and gone on with by `resume(its path)`."""
    chance = random.Random(seed)
    kind, source = tiny_runs.some_interrupted(chance)
    place = tiny_runs.folder() / "damaged"
    shutil.copytree(source, place)
    try:
        done = damage(place, kind, chance)
        said = None
        with tiny_runs.prepared_once():
            try:
                resume(place)
            except EdgesimError as error:
                said = str(error)
        if said is None:
            found, expected = tiny_runs.outcome(place), tiny_runs.expected(kind)
            wrong = [key for key in expected if found.get(key) != expected[key]]
            assert not wrong, (done, wrong)
            assert found.keys() == expected.keys(), done
        else:
            assert said.count("\n") <= 1, (done, said)
            assert str(place) in said or "checkpoints/device-" in said, (done, said)
    except BaseException as error:
        error.add_note(f"seed {seed}: {kind}")
        raise
    finally:
        shutil.rmtree(place)
