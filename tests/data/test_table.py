"""Tables of one's own: which columns are inputs, target and owners, and what is refused."""

from __future__ import annotations

import codecs
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgesim.data.arrays import ArrayDataset, dataset_of
from edgesim.data.errors import DataError
from edgesim.data.table import Table

ROWS = {
    "room": ["b", "a", "b", "c", "a", "c"],
    "warmth": [1.0, 2.0, 3.0, 4.0, 5.0, 9.0],
    "people": [0, 4, 0, 2, 2, 4],
    "open": [True, False, True, False, True, True],
    "day": [date(2026, 1, 1)] * 6,
    "state": ["dry", "wet", "dry", "damp", "wet", "dry"],
    "part": ["train", "train", "test", "train", "test", "train"],
}
TRAIN, TEST = [0, 1, 3, 5], [2, 4]


def write(path, rows=ROWS):
    """A table in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(rows), path)
    else:
        lines = zip(*([name, *column] for name, column in rows.items()), strict=True)
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return str(path)


@pytest.fixture(params=["csv", "parquet"])
def place(request, tmp_path):
    return write(tmp_path / f"rows.{request.param}")


def raw(path, **options):
    return Table(path, **{"target": "state", "split": "part", "standardize": False, **options})


def test_columns_are_inputs_classes_and_owners(place):
    table = raw(place, features=["warmth", "people"])
    for (inputs, classes), rows in ((table.train, TRAIN), (table.test, TEST)):
        assert inputs.dtype == np.float32
        assert inputs.tolist() == [[ROWS["warmth"][row], ROWS["people"][row]] for row in rows]
        order = ["damp", "dry", "wet"]
        assert classes.tolist() == [order.index(ROWS["state"][row]) for row in rows]
    assert table.columns["room"].tolist() == ["b", "a", "c", "c"]
    assert table.test_columns["room"].tolist() == ["b", "a"]
    assert set(table.columns) == {"room", "open", "day"}
    dataset = dataset_of("table", table)
    assert isinstance(dataset, ArrayDataset)
    assert dataset.num_classes == 3


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (["*"], ["warmth", "people", "open"]),
        (["p*", "warmth"], ["warmth", "people"]),
        (["open", "people"], ["people", "open"]),
    ],
)
def test_stars_take_columns_of_numbers_in_the_order_of_the_file(place, features, names):
    inputs, _ = raw(place, features=features).train
    assert inputs.tolist() == [[float(ROWS[name][row]) for name in names] for row in TRAIN]


def test_numbers_of_rows_that_pandas_wrote_are_no_inputs(tmp_path):
    table = pd.DataFrame(ROWS)
    table.to_csv(tmp_path / "rows.csv")
    table[::-1].to_parquet(tmp_path / "rows.parquet")
    for place in tmp_path.iterdir():
        inputs, _ = raw(str(place), features=["*"]).train
        assert inputs.shape == (4, 3), place.name


def test_the_type_of_a_column_follows_from_all_rows(tmp_path):
    lines = ["number,of", *["1,a"] * 400_000, '1.5,"b\nc"']  # more than a megabyte
    (tmp_path / "rows.csv").write_bytes(codecs.BOM_UTF8 + "\n".join(lines).encode())
    table = Table(str(tmp_path / "rows.csv"), target="of", features=["number"], standardize=False)
    assert len(table.train[1]) + len(table.test[1]) == 400_001
    assert max(part[0].max() for part in (table.train, table.test)) == 1.5


def test_inputs_are_standardized_by_training_rows(place):
    table = raw(place, features=["warmth"], standardize=True)
    warmth = np.array(ROWS["warmth"])
    mean, deviation = warmth[TRAIN].mean(), warmth[TRAIN].std()
    assert table.mean == [mean]
    assert table.deviation == [deviation]
    for (inputs, _), rows in ((table.train, TRAIN), (table.test, TEST)):
        assert inputs[:, 0] == pytest.approx((warmth[rows] - mean) / deviation)


def test_a_column_that_does_not_vary_becomes_0(tmp_path):
    place = write(tmp_path / "rows.csv", {**ROWS, "warmth": [0.1] * 6})
    inputs, _ = raw(place, features=["warmth"], standardize=True).train
    assert inputs == pytest.approx(0, abs=1e-6)


def test_fractions_are_quantities_and_whole_numbers_classes(place):
    values = raw(place, target="warmth", features=["people"]).train[1]
    assert values.dtype == np.float32
    assert values.tolist() == [ROWS["warmth"][row] for row in TRAIN]
    classes = raw(place, target="people", features=["warmth"]).train[1]
    assert classes.tolist() == [0, 2, 1, 2]
    said = raw(place, target="people", features=["warmth"], target_is="quantities").train[1]
    assert said.tolist() == [0.0, 4.0, 2.0, 4.0]
    assert raw(place, target="open", features=["warmth"]).train[1].tolist() == [1, 0, 0, 1]


def test_a_share_of_the_rows_is_drawn_once(tmp_path):
    rows = {"number": list(range(50)), "of": [number % 2 for number in range(50)]}
    place = write(tmp_path / "rows.csv", rows)
    tables = [Table(place, target="of", features=["number"], standardize=False) for _ in range(2)]
    train, test = (tables[0].train[0][:, 0].tolist(), tables[0].test[0][:, 0].tolist())
    assert len(test) == 10
    assert sorted(train + test) == rows["number"]
    assert test == tables[1].test[0][:, 0].tolist() == sorted(test)
    assert test != list(range(40, 50))
    few = Table(place, target="of", features=["number"], test_share=0.001)
    assert len(few.test[1]) == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_has_both_splits(tmp_path, kind):
    for split, rows in (("train", TRAIN), ("test", TEST)):
        part = {name: [column[row] for row in rows] for name, column in ROWS.items()}
        write(tmp_path / f"{split}.{kind}", part)
    table = Table(str(tmp_path), target="state", features=["warmth"], standardize=False)
    assert table.train[0][:, 0].tolist() == [ROWS["warmth"][row] for row in TRAIN]
    assert table.test[0][:, 0].tolist() == [ROWS["warmth"][row] for row in TEST]
    assert table.test[1].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": "warmth"}, r"data.options.features is 'warmth'; must be a list of columns"),
        ({"features": []}, "must be a list of columns"),
        ({"features": ["warmht"]}, "features: no column is named warmht; did you mean warmth"),
        ({"features": ["room"]}, "room holds string, and inputs are numbers; remove it, or write"),
        ({"features": ["x*"]}, r"no column of numbers is like x\*; there are room, warmth"),
        ({"target": "mood"}, "data.options.target: no column is named mood; there are room"),
        ({"features": ["people"], "target": "people"}, "has people, which is the target"),
        ({"split": "room"}, "room of row 1 is 'b'; must be train or test"),
        ({"split": "parts"}, r"data.options.split: no column is named parts; did you mean part\?"),
    ],
)
def test_options_that_do_not_fit_the_columns_are_refused(place, changes, said):
    with pytest.raises(DataError, match=said) as refused:
        raw(place, **{"features": ["warmth"], **changes})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        (
            "warmth",
            ["1", "2", "3", "", "5", "9"],
            "is empty or not finite in training row 3",
        ),
        ("warmth", ["1", "2", "inf", "4", "5", "9"], "not finite in test row 1, and in 1 in all"),
        ("state", ["dry", "", "dry", "damp", "wet", "dry"], "the target, is empty in training row"),
        ("part", ["train"] * 6, "has no row to test with; at least one is needed"),
    ],
)
def test_rows_that_lack_something_are_refused(tmp_path, column, values, said):
    place = write(tmp_path / "rows.csv", {**ROWS, column: values})
    with pytest.raises(DataError, match=said):
        raw(place, features=["warmth"])


def test_many_whole_numbers_must_be_said_to_be_classes(tmp_path):
    rows = {"warmth": list(range(150)), "steps": list(range(150))}
    place = write(tmp_path / "rows.csv", rows)
    with pytest.raises(DataError, match="steps has 150 whole numbers; say what they are with data"):
        Table(place, target="steps", features=["warmth"])
    found = Table(place, target="steps", features=["warmth"], target_is="classes")
    assert sorted([*found.train[1], *found.test[1]]) == rows["steps"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist; give a CSV or Parquet file"),
        (b"warmth;state\n1;dry\n2;wet\n", "has semicolons between its columns; write commas"),
        (b"warmth,state\n1,dry\n2\n", "rows.csv can't be read: "),
        (b"warmth,state\n1,dr\xfc\n2,wet\n", "not UTF-8 text; save it as UTF-8"),
        (b"", "rows.csv can't be read: "),
        (b"warmth,warmth,state\n1,2,dry\n1,3,wet\n", "has two columns named warmth; rename one"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "rows.csv").write_bytes(text)
    with pytest.raises(DataError, match=said) as refused:
        Table(str(tmp_path / "rows.csv"), target="state", features=["warmth"])
    assert "\n" not in str(refused.value)


def test_splits_that_do_not_fit_each_other_are_refused(tmp_path):
    whole = {name: ROWS[name] for name in ("warmth", "state")}
    write(tmp_path / "train.csv", whole)
    for other, said in (
        ({**whole, "people": ROWS["people"]}, "only one of the splits has the column people"),
        ({**whole, "warmth": ["x"] * 6}, "warmth holds string in the test rows"),
        ({**whole, "state": [1] * 6}, "the target, holds string in training rows and int64 in"),
    ):
        write(tmp_path / "test.csv", other)
        with pytest.raises(DataError, match=said):
            Table(str(tmp_path), target="state", features=["warmth"])
    with pytest.raises(DataError, match=r"split is part, but the folder .*; remove it"):
        raw(str(tmp_path), features=["warmth"])
    (tmp_path / "test.csv").unlink()
    with pytest.raises(DataError, match="lacks what table needs; give a CSV or Parquet file"):
        Table(str(tmp_path), target="state", features=["warmth"])
