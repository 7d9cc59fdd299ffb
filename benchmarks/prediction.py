"""Step times that a calibrated clock predicts, beside measured ones, for the models of the catalog.

The profile comes from `edgesim calibrate --out FILE`, which times none of these models. A step is
that of a device: load the parameters, forward pass, backward pass, update of momentum SGD, on one
thread, on fixed random inputs. Measured is the fastest of several steps, in processor time of the
thread; the cells take turns. Beside the prediction stands the plain roofline of the same profile:
the longer of arithmetic and traffic, at one rate each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from edgesim.assembly.build import DataSpec, choose_compute, make_flat_model
from edgesim.assembly.equipment import device_profiles
from edgesim.costs.work_meter import WorkMeter
from edgesim.data.text.hub import transformers
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.allocator import keep_freed_memory
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import Sgd
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario.files import load_scenario, parse_scenario

BATCHES = (1, 8, 32)
PRECISIONS = ("fp32", "int8")
BAR = 0.15
OPTIMIZER = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)
TOKENS, VOCABULARY = 64, 1000
ENCODER = {  # of the size of MiniLM-L6, with random weights
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
}
SCENARIO = """
name: prediction
data: {source: digits, partition: {kind: iid}, batch_size: 8}
fleet: {devices: 4}
topology: {kind: ring}
training: {epochs: 1, optimizer: {lr: 0.01}}
gossip: {algorithm: choco, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.1}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A model of the catalog and its inputs.

    Attributes:
        model: section `model` of a scenario, without the precision.
        shape: of an input.
    """

    model: dict[str, Any]
    shape: tuple[int, ...]


CASES = {
    "small_cnn": Case({"name": "small_cnn"}, (1, 8, 8)),
    "resnet20": Case({"name": "resnet20"}, (3, 32, 32)),
    "resnet54": Case({"name": "resnet54"}, (3, 32, 32)),
    "resnet": Case({"name": "resnet", "depth": 14, "width": 32}, (3, 32, 32)),
    "vgg11": Case({"name": "vgg11"}, (3, 32, 32)),
    "mobilenet_v2": Case({"name": "mobilenet_v2"}, (3, 32, 32)),
    "encoder": Case(
        {"name": "encoder", "options": {"encoder": "./encoder", "pretrained": False}}, (2, TOKENS)
    ),
    "distilbert": Case({"name": "distilbert"}, (2, TOKENS)),
    "mobilenet_v2-224": Case({"name": "mobilenet_v2"}, (3, 224, 224)),
    "resnet18-224": Case({"name": "resnet18"}, (3, 224, 224)),
    "vgg11-224": Case({"name": "vgg11"}, (3, 224, 224)),
}


@dataclass(slots=True)
class Cell:
    """One model, precision and batch size.

    Attributes:
        predicted_s: by the calibrated profile.
        roofline_s: by the same profile without times of layers.
        measured_s: the fastest step.
        num_steps: steps that were timed.
        parts_s: seconds of the prediction by kind of layer; `rest` is the roofline of all else.
    """

    model: str
    precision: str
    batch: int
    predicted_s: float = 0.0
    roofline_s: float = 0.0
    measured_s: float = float("inf")
    num_steps: int = 0
    parts_s: dict[str, float] = field(default_factory=dict)

    @property
    def is_close(self) -> bool:
        """Whether the prediction is within the bar."""
        return abs(self.predicted_s / self.measured_s - 1) <= BAR


def make_model(case: Case, precision: str, folder: Path) -> FlatModel:
    """The model as a device has it."""
    scenario = parse_scenario(
        SCENARIO + json.dumps({"model": {**case.model, "precision": precision}})[1:-1] + "\n",
        "prediction",
        folder,
    )
    channels, dtype = case.shape[0], "int64" if len(case.shape) == 2 else "float32"
    data = DataSpec(case.shape, 10, (0.0,) * channels, (1.0,) * channels, dtype)
    return make_flat_model(scenario, data, choose_compute(scenario, 0))


def make_batch(case: Case, size: int) -> tuple[Tensor, Tensor]:
    """Fixed random inputs and labels."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 10, (size,), generator=generator)
    if len(case.shape) == 3:
        return torch.randn(size, *case.shape, generator=generator), labels
    inputs = torch.ones((size, *case.shape), dtype=torch.int64)
    inputs[:, 0] = torch.randint(VOCABULARY, (size, TOKENS), generator=generator)
    return inputs, labels


def make_step(model: FlatModel, inputs: Tensor, labels: Tensor) -> Callable[[], None]:
    """A step of a device."""
    x, trainable = model.parameters.clone(), model.num_trainable
    state = OPTIMIZER.init(x[:trainable])

    def step() -> None:
        _seed(model)
        model.use_(x, model.buffers)
        _, gradient = model.loss_and_gradient(inputs, labels)
        OPTIMIZER.step_(state, x[:trainable], gradient[:trainable], 0.001)

    return step


def _seed(model: FlatModel) -> None:
    seed_dropout_(model.leaf_modules, 1)
    seed_rounding_(model.leaf_modules, 1)


def work_of_step(model: FlatModel, inputs: Tensor, labels: Tensor) -> Work:
    """Counted work of the step, with that of the optimizer and of loading the parameters."""
    meter = WorkMeter(model)
    _seed(model)
    with meter.watch(inputs.shape):
        model.loss_and_gradient(inputs, labels)
    load = vector_work(len(model.parameters), ops=0, passes=2)
    return meter.work(inputs.shape).total + OPTIMIZER.work(model.num_trainable) + load


def predict(cell: Cell, profile: DeviceProfile, work: Work) -> None:
    """Fill in what the profile predicts."""
    plain = replace(profile, layer_times=(), elementwise_ops_per_s=None)
    cell.predicted_s, cell.roofline_s = profile.compute_s(work), plain.compute_s(work)
    times = {time.kind: time for time in profile.layer_times}
    known = {t.kind: times[t.kind].seconds(t) for t in work.layers if t.kind in times}
    cell.parts_s = {**known, "rest": cell.predicted_s - sum(known.values())}


def measure(cell: Cell, step: Callable[[], None], seconds: float) -> None:
    """Time steps for so many seconds of wall time, at least two."""
    end_s, done = perf_counter() + seconds, 0
    while done < 2 or perf_counter() < end_s:
        start_s = thread_time()
        step()
        cell.measured_s = min(cell.measured_s, thread_time() - start_s)
        done += 1
    cell.num_steps += done


def take_turn(
    cells: list[Cell], profile: DeviceProfile, folder: Path, seconds: float | None
) -> Iterator[Cell]:
    """Predict each cell, and measure it once more; a model is made anew for each turn.

    Args:
        cells: in order of their models.
        profile: of this machine.
        folder: with the files of models.
        seconds: of a cell; None: its steps were measured before.
    """
    model, made = None, ("", "")
    for cell in cells:
        case = CASES[cell.model]
        if model is None or made != (cell.model, cell.precision):
            model, made = make_model(case, cell.precision, folder), (cell.model, cell.precision)
        inputs, labels = make_batch(case, cell.batch)
        predict(cell, profile, work_of_step(model, inputs, labels))
        if seconds is not None:
            measure(cell, make_step(model, inputs, labels), seconds)
        yield cell


def show(cells: list[Cell]) -> None:
    """Print the table."""
    console = Console(width=110)
    table = Table("model", "precision", "batch", "measured ms", "predicted", "ratio", "roofline")
    for cell in cells:
        table.add_row(
            cell.model,
            cell.precision,
            str(cell.batch),
            f"{1e3 * cell.measured_s:.1f}",
            f"{1e3 * cell.predicted_s:.1f}",
            f"{cell.predicted_s / cell.measured_s:.2f}{'' if cell.is_close else ' *'}",
            f"{cell.roofline_s / cell.measured_s:.2f}",
        )
    console.print(table)
    close = sum(cell.is_close for cell in cells)
    by_roofline = sum(abs(cell.roofline_s / cell.measured_s - 1) <= BAR for cell in cells)
    console.print(
        f"within {BAR:.0%}: {close} of {len(cells)} cells; by the roofline {by_roofline}; * is not"
    )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", type=Path, help="file of `edgesim calibrate --out`")
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a cell in a turn")
    parser.add_argument(
        "--steps", type=Path, help="file of an earlier --json: predict its steps by this profile"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, turn by turn")
    arguments = parser.parse_args()
    if any(len(CASES[name].shape) == 2 for name in arguments.models):
        transformers()  # models of texts need it: better missed now than after minutes
    torch.set_num_threads(1)
    keep_freed_memory()  # as runs do
    profile = device_profiles(load_scenario(arguments.profile))[0]
    cells = [
        Cell(model, precision, batch)
        for model in arguments.models
        for precision in arguments.precisions
        for batch in arguments.batches
    ]
    turns, seconds = arguments.turns, arguments.seconds
    if arguments.steps:
        cells = [Cell(**cell) for cell in json.loads(arguments.steps.read_text())]
        turns, seconds = 1, None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "encoder").mkdir()
        (folder / "encoder" / "config.json").write_text(json.dumps(ENCODER))
        for _ in range(turns):
            for cell in take_turn(cells, profile, folder, seconds):
                print(f"{cell.model} {cell.precision} {cell.batch}: {1e3 * cell.measured_s:.1f} ms")
                if arguments.json:
                    measured = [asdict(one) for one in cells if one.num_steps]
                    arguments.json.write_text(json.dumps(measured, indent=1) + "\n")
    show(cells)


if __name__ == "__main__":
    main()
