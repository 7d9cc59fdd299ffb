"""`edgesim export`: writes the trained model of a run to a file."""

from __future__ import annotations

import re
import warnings
from math import isclose
from pathlib import Path

from edgesim.api.programs import PROGRAM
from edgesim.api.trained import VALUES, FileNameError, TrainedModel, trained_model
from edgesim.data.errors import DataError
from edgesim.errors import ScenarioError
from edgesim.results.load import UnfinishedRunWarning, load_run
from edgesim.results.run import Run
from edgesim.study.tables.table import Table

_CLOSE = 1e-3  # between kinds of processors figures of one model differ by less
_DIFFERENT = (
    "The figures are not those of the run: code or files that the model is made of have changed."
)


def write_model(
    place: str, file: Path, device: str | None, *, full_precision: bool = False
) -> Table:
    """Write the model, evaluate it once more if the data are there, and give what was written.

    Args:
        place: directory of the run, or its URI.
        file: to write: a program if its name ends in `.pt2`, else the model's values.
        device: number or name of the device; None: the averaged model.
        full_precision: whether a model in 8 bits gets fp32 layers with the same values.

    Raises:
        EdgesimError: see `edgesim.api.trained`.
    """
    is_program = _is_program(file)
    with warnings.catch_warnings():  # `trained_model` says the same of unfinished runs
        warnings.simplefilter("ignore", UnfinishedRunWarning)
        run = load_run(place)
    model = trained_model(run, device)
    has_other_layers = full_precision and run.scenario.model.precision == "int8"
    if has_other_layers:
        model = model.full_precision()
    figures, is_same = _figures(run, model)
    if is_program:
        model.export(file)
        reader = f'torch.export.load("{file}").module()'
    else:
        model.save(file)
        reader = f'torch.load("{file}", weights_only=True)["state_dict"]'
    rows = [
        (
            "model",
            ("averaged" if device is None else f"of device {device}")
            + (", in fp32 layers" if has_other_layers else ""),
        ),
        ("parameters", f"{model.num_parameters:,}"),
        ("shape of an input", f"{tuple(model.input_shape)}"),
        *_scaling(model),
        *figures,
        ("file", f"{file} ({file.stat().st_size / 1e6:.2f} MB)"),
        ("read it with", reader),
    ]
    notes = () if is_same or has_other_layers else (_DIFFERENT,)
    return Table(f"{place}: its trained model", ("", ""), tuple(rows), notes)


def _scaling(model: TrainedModel) -> list[tuple[str, str]]:
    """How images become inputs; nothing of other samples."""
    if not model.mean:
        return []
    means, stds = (", ".join(f"{one:.6g}" for one in row) for row in (model.mean, model.std))
    return [("an input", f"(bytes / 255 - mean) / std; mean {means}, std {stds}")]


def _is_program(file: Path) -> bool:
    """Whether a file is to have a program, by its name.

    Raises:
        FileNameError: it can't be written, or its name is of another format.
    """
    kind = file.suffix.lower()
    if re.match(r"\w+:/", str(file)):  # of a URI, whose second / a path drops
        raise FileNameError(f"{file}: must be a file of this machine")
    if file.is_dir():
        raise FileNameError(f"{file}: is a folder; name a file in it, such as {file}/model.pt")
    if not file.parent.is_dir():
        raise FileNameError(f"{file}: there is no folder {file.parent}; make it first")
    if kind not in (PROGRAM, *VALUES):
        raise FileNameError(
            f"{file}: must end in {PROGRAM}, of a program, or in {' or '.join(VALUES)}, of values"
        )
    return kind == PROGRAM


def _figures(run: Run, model: TrainedModel) -> tuple[list[tuple[str, str]], bool]:
    """A row for each figure of the model, beside what the last evaluation of the run has.

    Also whether both are alike, as far as the run has them.
    """
    evaluations = run.evaluations
    newest = evaluations.loc[evaluations.index[evaluations["model"] == "consensus"][-1] :]
    rows = newest[newest["device"] == model.device]
    found, is_same = [], True
    where = f"on the {run.scenario.data.evaluated}"
    try:
        figures = model.evaluate().figures
    except (ScenarioError, DataError) as error:  # the data may be on another machine
        return [(where, f"not evaluated: {error}")], True
    for name, value in figures.items():
        if value is None:
            continue
        in_run = ""
        if len(rows):
            was = float(rows[name].iloc[0])
            in_run = f"; in the run's last evaluation {was:.4f}"
            is_same &= isclose(value, was, rel_tol=_CLOSE, abs_tol=_CLOSE)
        found.append((f"{name} {where}", f"{value:.4f}{in_run}"))
    return found, is_same
