"""Initial values: what is easily overlooked of their file, and their copy in a run directory.

A run does not need the file any more once it has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from edgesim.models.start_values import StartValues
from edgesim.results.run_files import RunFiles
from edgesim.scenario.catalog import MODELS
from edgesim.scenario.model import ModelSection

FILE = "start.npz"

_CLOSE = 0.05  # of a deviation: inputs that differ by less are the same to a model


def notices_of_start(
    start: StartValues, model: ModelSection, mean: Sequence[float], std: Sequence[float]
) -> tuple[str, ...]:
    """What else than its values differs between a model and that of its file.

    Args:
        start: the values.
        model: that begins with them.
        mean: of each channel of its images; empty if it takes no images.
        std: standard deviations of the channels.
    """
    found: list[str] = []
    name = Path(start.place).name
    if (was := _model_section(start.scenario)) is not None and was.name == model.name:
        for key, before, now in (
            ("norm", was.norm_used, model.norm_used),
            ("gate", was.gate_used, model.gate_used),
        ):
            if before and now and before != now:
                found.append(
                    f"model.start_from: {name} has values of a model with {key}: {before}, and "
                    f"this one has {now}: the same values give other outputs"
                )
    if start.mean and len(start.mean) == len(mean) and not _are_close(start, mean, std):
        there, here = _scaled(start.mean, start.std), _scaled(mean, std)
        found.append(
            f"model.start_from: {name} was trained on images that were normalised by {there}, and "
            f"these are by {here}: the same image is another input"
        )
    return tuple(found)


def _model_section(scenario: str) -> ModelSection | None:
    """Section `model` of a scenario as YAML, if it names a model that edgesim has."""
    try:
        content = yaml.safe_load(scenario)
        section = content.get("model") if isinstance(content, dict) else None
        name = section.get("name") if isinstance(section, dict) else None
        is_known = isinstance(name, str) and name in MODELS
        return ModelSection.model_validate(section) if is_known else None
    except (yaml.YAMLError, ValidationError, RecursionError):  # another version of edgesim wrote it
        return None


def _are_close(start: StartValues, mean: Sequence[float], std: Sequence[float]) -> bool:
    rows = zip(start.mean, start.std, mean, std, strict=True)
    return all(
        abs(was_mean - is_mean) <= _CLOSE * is_std and abs(was_std - is_std) <= _CLOSE * is_std
        for was_mean, was_std, is_mean, is_std in rows
    )


def _scaled(mean: Sequence[float], std: Sequence[float]) -> str:
    means, deviations = (", ".join(f"{one:.3g}" for one in row) for row in (mean, std))
    return f"mean {means} and deviation {deviations}"


def write_start(files: RunFiles, start: StartValues | None) -> None:
    """Keep the values that a run begins with, if they are not random."""
    if start is not None:
        files.write_arrays(FILE, start.arrays, durable=True)


def read_start(files: RunFiles) -> StartValues | None:
    """Values that a run began with; None: random ones.

    Raises:
        RunDirectoryError: the file is damaged.
    """
    if not files.has(FILE):
        return None
    return StartValues(files.read_arrays(FILE), f"{files.place}/{FILE}")
