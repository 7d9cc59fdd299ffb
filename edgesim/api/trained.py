"""The trained model of a run as a torch module, to be used, examined or trained further."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn

from edgesim.assembly.build import Compute, choose_compute, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.assembly.start_files import read_start
from edgesim.data.batches import passes_over
from edgesim.errors import EdgesimError
from edgesim.fleet.recording.evaluation import rounding_seeds, seeded
from edgesim.learning.flat_model import Evaluation, FlatModel
from edgesim.models.own import OwnModel
from edgesim.results.load import load_run
from edgesim.results.models import CONSENSUS, DeviceModel
from edgesim.results.run import Run
from edgesim.results.run_files import RunDirectoryError, RunFiles
from edgesim.scenario.schema import Scenario
from edgesim.storage.store import Store


class NoModelError(EdgesimError, LookupError):
    """A run has no model of the device that was asked for."""


class NoProgramError(EdgesimError):
    """A model can't be written as a program."""


@dataclass(frozen=True, slots=True, repr=False)
class TrainedModel:
    """A model with the values that it has at the end of a run.

    Attributes:
        module: on the CPU, in evaluation mode; of a model of one's own the module that its
            constructor gave, with the layers that edgesim replaced. What is done to it changes
            nothing in the run.
        device: number of the device; -1 for the averaged model.
        place: of the run.
    """

    module: nn.Module
    device: int
    place: str
    _flat: FlatModel
    _prepared: PreparedRun

    def __repr__(self) -> str:
        whose = "averaged model" if self.device == CONSENSUS else f"model of device {self.device}"
        return f"<{whose} of {self.place}: {self._prepared.scenario.model.name}>"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: channels, height and width of images."""
        return self._prepared.data.image_shape

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel: an input is (bytes / 255 - mean) / std. Empty if not of images."""
        return self._prepared.data.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel, as in `mean`."""
        return self._prepared.data.std

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The test samples of the run, as the module takes them: batches of inputs and targets."""
        prepared = self._prepared
        size = prepared.scenario.evaluation.batch_size
        return passes_over(prepared.test_samples(), size, self.mean, self.std)

    def evaluate(self, batches: Iterable[tuple[Tensor, Tensor]] | None = None) -> Evaluation:
        """Accuracy, loss and other metrics of the run's task; leaves evaluation mode on.

        Args:
            batches: of inputs and targets; None: the test samples of the run, which gives the
                figures of its last evaluation.

        Raises:
            RunDirectoryError: the test samples have changed since the run.
        """
        if batches is None:
            self._check_samples()
            batches = self.test_batches()
        prepared = self._prepared
        seeds = rounding_seeds(prepared.scenario.seed, self.device, prepared.training.num_rounds)
        return self._flat.evaluate(seeded(self._flat, batches, seeds))

    def save(self, path: Path | str) -> None:
        """Write the values to a file that `torch.load(path, weights_only=True)` reads.

        It gives a dictionary: `state_dict` has the tensors by the names of the module's; `mean`,
        `std` and `input_shape` are as here; `device`, `scenario` (YAML) and `run_digest` say where
        they come from.
        """
        files = RunFiles(Store.at(self.place))
        content = {
            "state_dict": {key: value.clone() for key, value in self.module.state_dict().items()},
            "mean": list(self.mean),
            "std": list(self.std),
            "input_shape": list(self.input_shape),
            "device": self.device,
            "scenario": files.read_text("scenario.yaml"),
            "run_digest": files.run_digest,
        }
        with _writer(path) as file:
            torch.save(content, file)

    def export(self, path: Path | str) -> None:
        """Write the model as a program of `torch.export`, which runs without edgesim.

        `torch.export.load(path).module()` takes batches of any size.

        Raises:
            NoProgramError: the model has 8-bit kernels, or operations that can't be traced.
        """
        if self._prepared.scenario.model.precision == "int8":
            raise NoProgramError(
                f"{self.place}: the kernels of 8-bit layers can't be part of a program; save its "
                "values in a file that ends in .pt"
            )
        inputs, _ = next(self.test_batches())
        example = torch.cat([inputs, inputs])[:2]  # one alone would fix the size of batches
        own = deepcopy(self.module).requires_grad_(requires_grad=False)
        for buffer in own.buffers():  # each a part of one vector, which would be written as a whole
            buffer.data = buffer.data.clone()
        try:
            sizes = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(own, (example,), dynamic_shapes=sizes)
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            raise NoProgramError(
                f"{self.place}: torch.export can't trace the model ({type(error).__name__}: "
                f"{said}); save its values in a file that ends in .pt"
            ) from error
        with _writer(path) as file:
            torch.export.save(program, file)

    def _check_samples(self) -> None:
        """Refuse other test samples than those of the run."""
        files = RunFiles(Store.at(self.place))
        then = files.read_json("environment.json").get("samples", {}).get("test")
        if then is not None and then != self._prepared.sample_digests["test"]:
            raise RunDirectoryError(
                f"{self.place}: the test samples have changed since the run; bring them back, or "
                "give batches"
            )


def trained_model(run: Run | Path | str, device: int | None = None) -> TrainedModel:
    """The model of a finished run, with its trained values.

        model = edgesim.trained_model("runs/quickstart-...")
        model.module(inputs)
        model.evaluate().accuracy  # that of the last evaluation

    The data of the scenario must still be where it was, since the model is made for it.

    Args:
        run: a run, or its directory: a path or a URI.
        device: number of a device; None for the averaged model.

    Raises:
        NoModelError: the run is not finished, or has no such device.
        ScenarioError, DataError: the model can't be made any more.
        RunDirectoryError: a file is damaged; or model or data have changed, so that the values do
            not fit.
    """
    if not isinstance(run, Run):
        run = load_run(run)
    values = _values_of(run, device)
    start = read_start(RunFiles(Store.at(run.place)))
    prepared = prepare(run.scenario, goes_on=True, reads_images=False, start=start)
    compute = _compute_here(prepared.scenario)
    flat = make_flat_model(prepared.scenario, prepared.data, compute, start)
    if values.x.shape != flat.parameters.shape or values.buffers.shape != flat.buffers.shape:
        raise RunDirectoryError(
            f"{run.place}: its model has {values.x.size:,} parameters, and the scenario's has "
            f"{flat.parameters.numel():,} now; bring its code and data back"
        )
    flat.load_(torch.from_numpy(values.z), torch.from_numpy(values.buffers))
    flat.model.eval()
    module = flat.model.inner if isinstance(flat.model, OwnModel) else flat.model
    return TrainedModel(module, values.device, run.place, flat, prepared)


def _values_of(run: Run, device: int | None) -> DeviceModel:
    """What the run has of a device, or of the averaged model.

    Raises:
        NoModelError: nothing.
    """
    if not run.models:
        raise NoModelError(
            f"{run.place}: this run is not finished, so it has no trained model yet: "
            f"edgesim resume {run.place}"
        )
    if device is None:
        return run.models.consensus
    if device not in run.models:
        raise NoModelError(
            f"{run.place}: has no device {device}; its devices are {min(run.models)} to "
            f"{max(run.models)}"
        )
    values = run.models[device]
    if not values.u > 0:
        raise NoModelError(f"{run.place}: device {device} has joined and was sent no model")
    return values


def _writer(path: Path | str) -> AbstractContextManager[IO[bytes]]:
    """A file that is there as a whole or not at all."""
    return Store.at(Path(path).parent).writer(Path(path).name)


def _compute_here(scenario: Scenario) -> Compute:
    """Arithmetic on the CPU, also of a run that was on GPUs."""
    fleet = scenario.fleet.model_copy(update={"accelerator": "cpu"})
    return choose_compute(scenario.model_copy(update={"fleet": fleet}), 0)
