"""The trained model of a run as a torch module, to be used, examined or trained further."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from edgesim.api.device_models import NoModelError, model_of
from edgesim.api.full_precision import in_full_precision, with_values
from edgesim.api.given_batches import GivenBatches
from edgesim.api.origin import Origin, data_of
from edgesim.api.programs import ABOUT_PROGRAM, PROGRAM, NoProgramError, traced
from edgesim.assembly.build import (
    Compute,
    choose_compute,
    flat_model_of,
    make_flat_model,
    make_model,
    make_task,
)
from edgesim.assembly.start_files import read_start
from edgesim.code_version import CodeVersion, code_version
from edgesim.data.batches import passes_over
from edgesim.errors import EdgesimError
from edgesim.fleet.environment import check_own_parts
from edgesim.fleet.recording.evaluation import rounding_seeds, seeded
from edgesim.learning.flat_model import FlatModel, Quality
from edgesim.learning.tasks import Classification
from edgesim.learning.threads import one_thread
from edgesim.models.children import named_places
from edgesim.models.dropout import SeededDropout
from edgesim.models.own import OwnModel
from edgesim.results.columns import CONSENSUS
from edgesim.results.load import load_run
from edgesim.results.run import Run
from edgesim.results.run_files import RunDirectoryError, RunFiles
from edgesim.scenario.schema import Scenario
from edgesim.storage.store import Store


class FileNameError(EdgesimError, ValueError):
    """A file can't be written, or its name says no format."""


class ChangedModuleError(EdgesimError, ValueError):
    """A module has other tensors than the model of the run."""


VALUES = (".pt", ".pth")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TrainedModel:
    """A model with the values that it has at the end of a run.

    Attributes:
        module: on the CPU, in evaluation mode; of a model of one's own the module that its
            constructor gives, in 8 bits with the layers that edgesim replaced. It may be trained
            further; the run stays as it is.
        device: number of the device; -1 for the averaged model.
        place: of the run.
    """

    module: nn.Module
    device: int
    place: str
    _flat: FlatModel
    _origin: Origin

    def __repr__(self) -> str:
        whose = "averaged model" if self.device == CONSENSUS else f"model of device {self.device}"
        return f"<{whose} of {self.place}: {self._origin.scenario.model.name}>"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: channels, height and width of images."""
        return self._origin.data.image_shape

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel: an input is (bytes / 255 - mean) / std. Empty if not of images."""
        return self._origin.data.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel, as in `mean`."""
        return self._origin.data.std

    @property
    def num_parameters(self) -> int:
        """Trained parameters."""
        return self._flat.num_trainable

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The test samples of the run, as the module takes them: batches of inputs and targets.

        Raises:
            ScenarioError, DataError: the data, or files that the scenario names, are not there.
        """
        size = self._origin.scenario.evaluation.batch_size
        return passes_over(self._origin.prepared.test_samples(), size, self.mean, self.std)

    def evaluate(self, batches: Iterable[tuple[Tensor, Tensor]] | None = None) -> Quality:
        """Accuracy, loss and other metrics of the run's task, by the module as it is now.

        Args:
            batches: pairs of inputs and targets, tensors or arrays of numpy as those of
                `test_batches`, also of other sizes if the model takes them; None: the test samples
                of the run, which gives the figures of its last evaluation on the common test
                samples.

        Raises:
            ValueError: there is no sample, or a batch has another form.
            ScenarioError, DataError: the data, or files that the scenario names, are not there.
            RunDirectoryError: the test samples have changed since the run.
            ChangedModuleError: the module has other tensors than at first.
        """
        if batches is None:
            self._check_samples()
            return self._evaluated(self.test_batches())
        are_classes = type(make_task(self._origin.scenario)) is Classification
        given = GivenBatches(batches, self._origin.data, are_classes=are_classes)
        try:
            return self._evaluated(given)
        except Exception as error:
            if not given.unlike:
                raise
            raise ValueError(
                f"{given.unlike}, or of sizes that the model takes: it ends in "
                f"{type(error).__name__}: {error}"
            ) from error

    def _evaluated(self, batches: Iterable[tuple[Tensor, Tensor]]) -> Quality:
        origin = self._origin
        seeds = rounding_seeds(origin.scenario.seed, self.device, origin.num_rounds)
        with one_thread():  # as in runs
            _copy_tensors(self.module, _inner(self._flat.model))
            return self._flat.evaluate(seeded(self._flat, batches, seeds))

    def save(self, path: Path | str) -> None:
        """Write the values to a file that `torch.load(path, weights_only=True)` reads.

        Args:
            path: ends in `.pt` or `.pth`.

        It gives a dictionary: `state_dict` has the tensors by the names of the module's; `mean`,
        `std` and `input_shape` are as here; `device`, `scenario` (YAML) and `run_digest` say where
        they come from.

        Raises:
            FileNameError: the path ends otherwise.
            StorageError: the file can't be written.
        """
        _check_suffix(path, VALUES)
        values = {key: value.clone() for key, value in self.module.state_dict().items()}
        content = {"state_dict": values} | self._about()
        with _writer(path) as file:
            torch.save(content, file)

    def export(self, path: Path | str) -> None:
        """Write the model as a program of `torch.export`, which runs without edgesim.

        `torch.export.load(path).module()` takes batches of any size. How images become inputs is
        in the file too, as JSON with `mean`, `std` and `input_shape`:

            extra = {"edgesim.json": ""}
            torch.export.load(path, extra_files=extra)
            json.loads(extra["edgesim.json"])["mean"]

        Args:
            path: ends in `.pt2`.

        Raises:
            FileNameError: the path ends otherwise.
            NoProgramError: the model has 8-bit kernels, or operations that can't be traced.
            StorageError: the file can't be written.
        """
        _check_suffix(path, (PROGRAM,))
        if self._origin.scenario.model.precision == "int8":
            raise NoProgramError(
                f"{self.place}: the kernels of 8-bit layers can't be part of a program; take fp32 "
                "layers with the same values (in Python full_precision(), on the command line "
                "--full-precision), or save its values in a file that ends in .pt"
            )
        dtype = getattr(torch, self._origin.data.input_dtype)
        program = traced(self.module, self.input_shape, dtype, self.place)
        with _writer(path) as file:
            torch.export.save(program, file, extra_files={ABOUT_PROGRAM: json.dumps(self._about())})

    def full_precision(self) -> TrainedModel:
        """The model with fp32 layers in place of 8-bit ones, which can be written as a program.

        It has the same values. Inputs, weights and activations are no longer rounded to 8 bits, so
        its figures differ: see `evaluate`. Of a model of one's own it is the module that its
        constructor gives, but for EvoNorm-S0, which 8 bits make a Range EvoNorm. A model that is
        in fp32 is given as it is.

        Raises:
            ScenarioError, DataError: the model can't be made any more.
            NoModelError: a value has no counterpart in 8 bits.
        """
        origin = self._origin
        if origin.scenario.model.precision == "fp32":
            return self
        scenario = in_full_precision(origin.scenario)
        compute = _compute_here(scenario)
        model = make_model(scenario, origin.data, compute)  # all its values are replaced
        try:
            module = with_values(self.module, _inner(model))
        except KeyError as error:
            raise NoModelError(f"{self.place}: its 8-bit model has no {error.args[0]}") from error
        if isinstance(model, OwnModel):
            model.inner = deepcopy(module)
        else:
            model = deepcopy(module)
        flat = flat_model_of(model, scenario, compute)
        origin = replace(origin, scenario=scenario, start=None)
        _let_dropout_draw(module)
        return TrainedModel(module.eval(), self.device, self.place, flat, origin)

    def _about(self) -> dict[str, Any]:
        """How images become inputs, and where the model comes from."""
        files = RunFiles(Store.at(self.place))
        return {
            "mean": list(self.mean),
            "std": list(self.std),
            "input_shape": list(self.input_shape),
            "device": self.device,
            "scenario": files.read_text("scenario.yaml"),
            "run_digest": files.run_digest,
        }

    def _check_samples(self) -> None:
        """Refuse other test samples than those of the run."""
        then = self._origin.environment.get("samples", {}).get("test")
        if then is not None and then != self._origin.prepared.test_digest:
            raise RunDirectoryError(
                f"{self.place}: the test samples have changed since the run; bring them back"
            )


def trained_model(
    run: Run | Path | str, device: int | np.integer[Any] | str | None = None
) -> TrainedModel:
    """The model of a finished run, with its trained values.

        model = edgesim.trained_model("runs/quickstart-...")
        model.module(inputs)
        model.evaluate().accuracy  # that of the last evaluation

    A run directory is enough for it, also on another machine. `evaluate` and `test_batches` read
    the data and all files that the scenario names, where it names them. Pretrained encoders are
    read at once.

    Args:
        run: a run, or its directory: a path or a URI.
        device: number or name of a device; None for the averaged model.

    Raises:
        NoModelError: the run is not finished, or has no such device.
        ScenarioError, DataError: the model can't be made any more.
        RunDirectoryError: a file is damaged or missing; or own code has changed, or data of a run
            of an older edgesim.
    """
    if not isinstance(run, Run):
        run = load_run(run)
    values = model_of(run, device)
    environment = _environment(run.place)
    check_own_parts(run.place, run.scenario, environment)
    start = read_start(RunFiles(Store.at(run.place)))
    data = data_of(run, environment, start)
    compute = _compute_here(run.scenario)
    flat = make_flat_model(run.scenario, data, compute, start)
    if values.x.shape != flat.parameters.shape or values.buffers.shape != flat.buffers.shape:
        raise RunDirectoryError(
            f"{run.place}: its model has {values.x.size:,} parameters, and the scenario's has "
            f"{flat.parameters.numel():,} now; bring its code back"
            f"{_or_update(environment)}"
        )
    flat.load_(torch.from_numpy(values.z), torch.from_numpy(values.buffers))
    # A module of its own: that of `flat` keeps its tensors in vectors, and its gradients too.
    module = _inner(make_model(run.scenario, data, compute, start))
    _copy_tensors(_inner(flat.model), module)
    _let_dropout_draw(module)
    origin = Origin(run.scenario, environment, start, data)
    return TrainedModel(module.eval(), values.device, run.place, flat, origin)


def _environment(place: str) -> Mapping[str, Any]:
    return RunFiles(Store.at(place)).read_json("environment.json")


def _inner(model: nn.Module) -> nn.Module:
    """The module that a constructor of one's own gave; a model of the catalog itself."""
    return model.inner if isinstance(model, OwnModel) else model


def _copy_tensors(source: nn.Module, target: nn.Module) -> None:
    """Copy all values, also of buffers that are in no `state_dict`.

    Raises:
        ChangedModuleError: the modules have other tensors.
    """
    there, here = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (source, target))
    if {name: t.shape for name, t in there.items()} != {name: t.shape for name, t in here.items()}:
        raise ChangedModuleError(
            "the module has other tensors than the model of the run; evaluate it by your own code"
        )
    with torch.no_grad():
        for name, tensor in here.items():
            tensor.copy_(there[name])


def _let_dropout_draw(module: nn.Module) -> None:
    """Let dropout draw from torch's generator: nothing seeds its layers outside of a fleet."""
    for owner in list(module.modules()):
        for name, layer in named_places(owner):
            if isinstance(layer, SeededDropout):
                setattr(owner, name, nn.Dropout(layer.p, inplace=layer.inplace))


def _check_suffix(path: Path | str, allowed: Sequence[str]) -> None:
    """Refuse a name that does not say what is in the file.

    Raises:
        FileNameError: it ends otherwise.
    """
    if Path(path).suffix.lower() not in allowed:
        what = "a program" if PROGRAM in allowed else "values"
        raise FileNameError(f"{path}: a file of {what} must end in {' or '.join(allowed)}")


def _writer(path: Path | str) -> AbstractContextManager[IO[bytes]]:
    """A file that is there as a whole or not at all."""
    return Store.at(Path(path).parent).writer(Path(path).name)


def _compute_here(scenario: Scenario) -> Compute:
    """Arithmetic on the CPU, also of a run that was on GPUs."""
    fleet = scenario.fleet.model_copy(update={"accelerator": "cpu"})
    return choose_compute(scenario.model_copy(update={"fleet": fleet}), 0)


def _or_update(environment: Mapping[str, Any]) -> str:
    """What may be the reason where nothing of one's own has changed."""
    there, here = CodeVersion.of(environment), code_version()
    if not here.differs(there):
        return ""
    return f", or read it with {there}, which made it: this is {here}"
