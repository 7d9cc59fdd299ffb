"""A figure of a report: its data as tables, and what Vega-Lite draws of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from edgesim.report.frames import Chart, Frame

if TYPE_CHECKING:
    import altair as alt

Spec: TypeAlias = dict[str, Any]
"""A drawing in Vega-Lite, whose data are named tables of its figure."""

# M. Okabe and K. Ito, Color universal design: told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY, BLACK = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#9a9a9a", "#333333"),
)
COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, BLACK, "#8c564b", "#7f7fff", "#b8a800")

BANDS = (("lowest", "highest", 0.12), ("p10", "p90", 0.2), ("p25", "p75", 0.3))
"""Lower and upper edge of each band of many curves, and its opacity."""

ROW_HEIGHT = 20  # pixels of a bar with its gap


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a figure's data.

    Attributes:
        label: text of its button; empty for the only view of a figure.
        spec: the drawing.
    """

    label: str
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure with its data.

    Attributes:
        key: identity in the page, and name of its files.
        title: what it shows.
        caption: how to read it, and what to see in it.
        tables: data by the name that the views use; each can be downloaded as CSV.
        views: drawings, the first one is shown at first.
        choice: what the views differ in; empty for a single view.
    """

    key: str
    title: str
    caption: str
    tables: Mapping[str, Frame]
    views: Sequence[View]
    choice: str = ""


def csv_text(table: Frame) -> str:
    """A table as it is downloaded and drawn; numbers are whole, so they read back equal."""
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text


def source(name: str, table: Frame) -> alt.NamedData:
    """Data of a chart: a table of the figure, with the types of its columns."""
    import altair as alt
    from pandas.api.types import is_numeric_dtype

    parse: dict[str, Any] = {
        str(column): "number" if is_numeric_dtype(table[column]) else "string"
        for column in table.columns
    }
    return alt.NamedData(name=name, format=alt.CsvDataFormat(type="csv", parse=parse))


def channels(**given: Any) -> dict[str, Any]:  # noqa: ANN401 (whatever altair takes)
    """Channels of a drawing as altair's objects.

    Altair would compare each text such as `name:N` with its whole schema to find the object, which
    takes 20 ms.
    """
    import altair as alt

    def channel(name: str, value: object) -> object:
        if isinstance(value, str):
            return getattr(alt, name)(value)
        if isinstance(value, list):
            return [channel(name, item) for item in value]
        if isinstance(value, dict) and value.keys() == {"value"}:
            return getattr(alt, f"{name}Value")(value["value"])
        return value

    return {name: channel(f"{name[0].upper()}{name[1:]}", value) for name, value in given.items()}


def are_known(*columns: str) -> str:
    """Condition of a drawing: a row has a value in each column; Vega would draw none as 0."""
    return " && ".join(f"isValid(datum.{column})" for column in columns)


def as_spec(chart: Chart) -> Spec:
    """The drawing as JSON holds it; tests compile all drawings, so it is not checked again."""
    spec: Spec = chart.to_dict(validate=False)
    for key in ("$schema", "config"):  # the page has both, once
        spec.pop(key, None)
    # The width is the page's; the height is that of the drawing alone.
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def rounded(table: Frame, digits: int = 6) -> Frame:
    """A table that was computed for a drawing, with no more digits than anybody reads."""
    import numpy as np

    result = table.copy()
    for column in result.select_dtypes("floating"):
        values = result[column].to_numpy(dtype=float, copy=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            places = digits - 1 - np.floor(np.log10(np.abs(values)))
        usable = np.isfinite(places)
        factor = 10.0 ** np.clip(places[usable], -300, 300)
        values[usable] = np.round(values[usable] * factor) / factor
        result[column] = values
    return result
