"""Tables of rows, against pyarrow's own."""

from __future__ import annotations

import math
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgesim.results.arrow_table import column_of, numbers_of, table_of

INT_32 = st.integers(-(2**31), 2**31 - 1)
INT_64 = st.integers(-(2**63), 2**63 - 1)
KINDS = {
    "small": (pa.int32(), INT_32),
    "large": (pa.int64(), INT_64),
    "number": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=4)),
    "counts": (pa.list_(pa.int64()), st.lists(INT_64, max_size=3)),
}
SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"meaning": "?"}) for name, (kind, _) in KINDS.items()]
)
ROWS = st.fixed_dictionaries(
    {}, optional={n: values | st.none() for n, (_, values) in KINDS.items()}
)


WHOLE_ROWS = st.fixed_dictionaries({name: values for name, (_, values) in KINDS.items()})


@given(st.lists(ROWS, max_size=5) | st.lists(WHOLE_ROWS, max_size=5))
def test_a_table_is_that_of_pyarrow(rows):
    table = table_of(rows, SCHEMA)
    assert table.equals(pa.Table.from_pylist(rows, schema=SCHEMA), check_metadata=True)
    table.validate(full=True)


@given(st.lists(INT_32), st.lists(INT_32))
def test_numbers_are_those_of_all_pieces(first, second):
    schema = pa.schema([pa.field("x", pa.int32())])
    pieces = [table_of([{"x": x} for x in part], schema) for part in (first, second)]
    table = pa.concat_tables(pieces)
    assert numbers_of(table["x"]).tolist() == first + second
    assert numbers_of(table.to_pandas()["x"]).tolist() == first + second


def test_nan_is_a_number_and_not_null():
    column = column_of([math.nan, 1.0], pa.float64())
    assert column.null_count == 0
    assert math.isnan(column[0].as_py())


PROGRAM = """
import io, sys
from edgesim.results import part_merge
from edgesim.results.arrow_table import table_of
from edgesim.results.columns import ROUNDS, arrow_schema, with_names
part_merge.ROWS_PER_GROUP = 1
schema = arrow_schema(tuple(c for c in ROUNDS if c.name in ("round", "device")))
rows = [{"round": r, "device": 0} for r in range(4)]
parts = {f"p{r}": table_of(rows[r : r + 2], schema) for r in (0, 2)}
target = io.BytesIO()
names = [part_merge.Part(r, f"p{r}") for r in (0, 2)]
part_merge.merge_parts(names, parts.get, ["round", "device"], schema, target)
rows = [{"round": 0, "device": device} for device in (-1, 1)]
named = with_names(table_of(rows, schema), ["a", "b"])
print(named.to_pylist()[1]["name"], "pandas" in sys.modules)
"""


def test_parts_are_joined_and_devices_named_without_pandas():
    program = [sys.executable, "-c", PROGRAM]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "b False\n"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**31, pa.int32()),
        (2**63, pa.int64()),
        (0.5, pa.int64()),
        ("x", pa.float64()),
        (1, pa.string()),
    ],
)
def test_a_value_of_another_type_is_refused(value, kind):
    with pytest.raises((TypeError, OverflowError, pa.ArrowInvalid)):
        column_of([value], kind)
