"""Natural partitions: columns of owners and files of shards, of training and of test samples."""

from __future__ import annotations

import math
from datetime import date
from itertools import permutations
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from edgesim.data import natural
from edgesim.data.errors import PartitionError
from edgesim.data.natural import by_file, held_out_by_file, held_out_by_owner


def by_owner(owners, num_devices, names=()):
    """The partition, of a dataset with one column."""
    return natural.by_owner({"user": owners}.__getitem__, "user", num_devices, names)


COLUMNS = {
    "text": np.array(["b", "a", "b", "c"]),
    "text of Parquet": np.array(["b", "a", "b", "c"], object),
    "whole numbers": np.array([7, -1, 7, 30]),
    "floats": np.array([0.5, -1.0, 0.5, math.inf]),
    "days": np.array(["2020-01-02", "2020-01-01", "2020-01-02", "2021-01-01"], "datetime64[D]"),
    "days of Python": np.array(
        [date(2020, 1, 2), date(2020, 1, 1), date(2020, 1, 2), date(2021, 1, 1)], object
    ),
}


@pytest.mark.parametrize("owners", COLUMNS.values(), ids=COLUMNS)
def test_owners_in_order_are_dealt_in_turn(owners):
    assert [list(shard) for shard in by_owner(owners, 3)] == [[1], [0, 2], [3]]
    assert [list(shard) for shard in by_owner(owners, 2)] == [[1, 3], [0, 2]]


@pytest.mark.parametrize("owners", COLUMNS.values(), ids=COLUMNS)
def test_test_samples_go_to_the_device_of_their_owner(owners):
    """Device 0 has the first and the third owner; the owner of the last sample left no other."""
    shards = by_owner(owners[:3], 2)
    assert [list(part) for part in held_out_by_owner(owners[:3], shards, owners[::-1])] == [
        [2],
        [1, 3],
    ]


@pytest.mark.parametrize("owners", COLUMNS.values(), ids=COLUMNS)
def test_a_device_gets_the_samples_of_its_name(owners):
    """In whatever order devices are: numbers go by the scenario or by the file of a graph."""
    by_name = {str(owner): list(np.flatnonzero(owners == owner)) for owner in owners}
    for names in permutations(by_name):
        assert [list(shard) for shard in by_owner(owners, 3, names)] == [by_name[n] for n in names]


@pytest.mark.parametrize("kind", [None, object], ids=["text", "text of Parquet"])
def test_owners_are_the_same_however_unicode_composes_them(kind):
    """A dataset may mix both forms, and its splits may have unlike ones."""
    composed, decomposed = (normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    assert composed != decomposed
    owners = np.array([composed, decomposed, "bar", "zoo"], kind)
    shards = by_owner(owners, 3)
    assert [list(shard) for shard in shards] == [[2], [0, 1], [3]]
    with pytest.raises(PartitionError, match="has only 3 owners"):
        by_owner(owners, 4)
    test_owners = np.array([decomposed, "zoo", composed], kind)
    held_out = held_out_by_owner(owners, shards, test_owners)
    assert [list(part) for part in held_out] == [[], [0, 2], [1]]
    owners = np.array([composed, "bar"], kind)
    held_out = held_out_by_owner(owners, by_owner(owners, 2), test_owners[:1])
    assert [list(part) for part in held_out] == [[], [0]]


@pytest.mark.parametrize(
    ("num_devices", "names", "said"),
    [
        (3, (), "3, in the order of their names: a on device 0, b on device 1, ..."),
        (2, (), "3 in turn, in the order of their names: a on device 0, b on device 1, ..."),
        (1, (), "3 in turn, in the order of their names: a on device 0, b on device 0, ..."),
        (3, ("c", "a", "b"), "3, each on the device of its name"),
    ],
)
def test_words_say_which_device_has_which_owner(num_devices, names, said):
    owners = np.array(["b", "a", "c", "a"])
    assert natural.how_dealt(owners, num_devices, names) == said


def test_names_that_no_owner_has_leave_the_order_of_owners():
    assert [list(part) for part in by_owner(COLUMNS["text"], 3, ["z", "y", "x"])] == [
        [1],
        [0, 2],
        [3],
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["c", "b", "x"], "are named like owners, but no sample is of 'x'; add samples of it"),
        (["c", "b", "x"], "each device trains, a gateway too"),
        (["c", "b"], "have the names of devices, but no device is named 'a'; add it"),
    ],
)
def test_names_of_some_owners_are_refused(names, said):
    with pytest.raises(PartitionError, match=said):
        by_owner(COLUMNS["text"], len(names), names)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_letter_with_an_accent_is_the_same_however_it_is_composed(form, tmp_path):
    owners = np.array([normalize(form, "Zoë"), "Ida", "Ida"])
    names = ["Ida", normalize("NFC", "Zoë")]
    assert [list(part) for part in by_owner(owners, 2, names)] == [[1, 2], [0]]
    path = str(write(tmp_path / "n.csv", device=pa.array(owners[:2]), sample=pa.array([8, 3])))
    assert [list(part) for part in by_file(path, 9, 2, device_names=names)] == [[3], [8]]


@pytest.mark.parametrize("names", [["A", "B", "C"], ["a ", "z", "y"], ["a", "b", "C"]])
def test_names_that_differ_in_case_or_blanks_alone_are_refused(names):
    """Else owners would be dealt in turn, and device A would have any owner's samples."""
    with pytest.raises(
        PartitionError, match=r"an owner is named '\w', and a device .* both names alike"
    ):
        by_owner(COLUMNS["text"], 3, names)


NAN, NOT_A_TIME = float("nan"), np.datetime64("nat")


@pytest.mark.parametrize(
    "owners",
    [
        np.array([1.0, NAN, 2.0]),
        np.array(["a", None, "b"], object),
        np.array(["a", NAN, "b"], object),
        np.array(["a", "", "b"], object),
        np.array(["a", " ", "b"]),
        np.array([b"a", b"", b"b"]),
        np.array(["2020-01-01", NOT_A_TIME, "2020-01-02"], "datetime64[D]"),
    ],
)
def test_a_sample_without_owner_is_refused(owners):
    with pytest.raises(PartitionError, match="column: training sample 1 has no owner"):
        by_owner(owners, 1)
    with pytest.raises(PartitionError, match="column: test sample 1 has no owner"):
        held_out_by_owner(owners[[0, 2]], [np.array([0])], owners)


@pytest.mark.parametrize(
    ("owners", "said"),
    [
        (np.array(["a", 1, "b"], object), "holds int and str in training samples"),
        (np.array([{}, {}], object), "must hold text, numbers or times"),
        (np.array([1j, 2j]), "must hold text, numbers or times"),
        (np.array(["a", "b"]), "fleet.devices is 3, but data.partition.column has only 2 owners"),
    ],
)
def test_owners_that_can_not_be_dealt_are_refused(owners, said):
    with pytest.raises(PartitionError, match=said):
        by_owner(owners, 3)


def test_owners_of_two_types_are_refused():
    """Else 1 and "1" would be two owners, and no device would have held-out samples."""
    with pytest.raises(PartitionError, match="by numbers, and of test samples by text"):
        held_out_by_owner(np.array([1, 2]), [np.array([0, 1])], np.array(["1", "2"]))
    owners, same = np.array([1, 2]), np.array([1.0, 3.0])  # pandas reads such, if some are missing
    assert [list(part) for part in held_out_by_owner(owners, [np.array([0])], same)] == [[0]]


def write(path: Path, **columns: pa.Array) -> Path:
    """A table as CSV or Parquet, by the file's name."""
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pa_csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("name", ["shards.csv", "shards.parquet"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint64()])
def test_a_file_of_either_format_says_who_has_which_sample(tmp_path, name, kind):
    columns = {"device": pa.array([1, 0, 1], kind), "sample": pa.array([8, 3, 0], kind)}
    path = write(tmp_path / name, note=pa.array(["x", "y", "z"]), **columns)
    assert [list(shard) for shard in by_file(str(path), 9, 2)] == [[3], [0, 8]]
    with pytest.raises(PartitionError, match=r"path: .* gives device 2 no sample"):
        by_file(str(path), 9, 3)
    shards = held_out_by_file(str(path), 9, 3)
    assert [list(shard) for shard in shards] == [[3], [0, 8], []]


def test_a_file_goes_by_names_where_devices_have_them(tmp_path):
    columns = {"device": pa.array(["mast", "barn", "mast"]), "sample": pa.array([8, 3, 0])}
    path = str(write(tmp_path / "shards.csv", **columns))
    for names, shards in (("barn", "mast"), [[3], [0, 8]]), (("mast", "barn"), [[0, 8], [3]]):
        assert [list(shard) for shard in by_file(path, 9, 2, device_names=names)] == shards
        assert [list(shard) for shard in held_out_by_file(path, 9, 2, names)] == shards
    with pytest.raises(PartitionError, match=r"no device is named 'mast'; did you mean mass\?"):
        by_file(path, 9, 2, device_names=("barn", "mass"))
    with pytest.raises(PartitionError, match=r"gives device 2 \(dock\) no sample"):
        by_file(path, 9, 3, device_names=("barn", "mast", "dock"))
    numbered = str(write(tmp_path / "n.csv", device=pa.array([0, 1]), sample=pa.array([8, 3])))
    with pytest.raises(PartitionError, match="no device is named '0'"):
        by_file(numbered, 9, 2, device_names=("barn", "mast"))


def test_names_of_digits_stay_as_they_are_written(tmp_path):
    path = tmp_path / "shards.csv"
    path.write_text("sample,device\n8,002\n3,001\n")
    assert [list(part) for part in by_file(str(path), 9, 2, device_names=("001", "002"))] == [
        [3],
        [8],
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("sample;device\n0;mast\n", "has semicolons between its columns; write commas"),
        ("sample,device\n0,m\u00e4st\n", "is not UTF-8 text; save it as UTF-8"),
    ],
)
def test_files_of_a_spreadsheet_are_told_how_to_be_saved(tmp_path, content, said):
    path = tmp_path / "shards.csv"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(PartitionError, match=said):
        by_file(str(path), 9, 1, device_names=("mast",))


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (pa.array([0, None]), "sample must hold a whole number in each row"),
        (pa.array([0.0, 1.0]), "sample must hold a whole number in each row"),
        (pa.array(["0", "1"]), "sample must hold a whole number in each row"),
        (pa.array([0, 2**63], pa.uint64()), "sample 9223372036854775808 does not exist"),
        (pa.array([0, -1]), "sample -1 does not exist; numbers go from 0 to 8"),
        (pa.array([5, 5]), "names sample 5 twice"),
    ],
)
def test_a_parquet_file_that_deals_badly_is_refused(tmp_path, samples, said):
    path = write(tmp_path / "shards.parquet", sample=samples, device=pa.array([0, 1]))
    with pytest.raises(PartitionError, match=f"data.partition.test_path: .*{said}"):
        held_out_by_file(str(path), 9, 2)


@pytest.mark.parametrize("name", ["shards.csv", "shards.parquet"])
def test_a_file_that_can_not_be_read_is_refused(tmp_path, name):
    with pytest.raises(PartitionError, match="can't be read"):
        by_file(str(tmp_path / name), 9, 2)
    (tmp_path / name).write_bytes(b"PAR1\x00\xff\n1,2\n\n3")
    with pytest.raises(PartitionError, match=r"can't be read|must have sample"):
        by_file(str(tmp_path / name), 9, 2)
