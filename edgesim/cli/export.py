"""`edgesim export`: writes the trained model of a run to a file."""

from __future__ import annotations

from pathlib import Path

from edgesim.api.trained import TrainedModel, trained_model
from edgesim.results.load import load_run
from edgesim.results.run import Run
from edgesim.study.tables.table import Table

PROGRAM = ".pt2"  # torch's suffix of exported programs


def write_model(place: str, file: Path, device: int | None) -> Table:
    """Write the model, evaluate it once more, and give what was written.

    Args:
        place: directory of the run, or its URI.
        file: to write: a program if its name ends in `.pt2`, else the model's values.
        device: whose model; None: the averaged one.

    Raises:
        EdgesimError: see `edgesim.api.trained`.
    """
    run = load_run(place)
    model = trained_model(run, device)
    is_program = file.suffix == PROGRAM
    if is_program:
        model.export(file)
        reader = f'torch.export.load("{file}").module()'
    else:
        model.save(file)
        reader = f'torch.load("{file}", weights_only=True)["state_dict"]'
    rows = [
        ("model", "averaged" if device is None else f"of device {device}"),
        ("parameters", f"{sum(p.numel() for p in model.module.parameters()):,}"),
        ("shape of an input", f"{tuple(model.input_shape)}"),
        *_figures(run, model),
        ("file", f"{file} ({file.stat().st_size / 1e6:.2f} MB)"),
        ("read it with", reader),
    ]
    return Table(f"{place}: its trained model", ("", ""), tuple(rows))


def _figures(run: Run, model: TrainedModel) -> list[tuple[str, str]]:
    """A row for each figure of the model, beside what the last evaluation of the run has."""
    evaluations = run.evaluations
    newest = evaluations.loc[evaluations.index[evaluations["model"] == "consensus"][-1] :]
    rows = newest[newest["device"] == model.device]
    found = []
    for name, value in model.evaluate().figures.items():
        if value is not None:
            in_run = f"; in the run's last evaluation {rows[name].iloc[0]:.4f}" if len(rows) else ""
            found.append((f"{name} on the test samples", f"{value:.4f}{in_run}"))
    return found
