"""Models of one's own: made from a scenario, checked before a run, measured for tables of costs."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.parts.model_gradients import notices_of_gradients
from edgesim.assembly.parts.own_errors import failure, key_of, place_of, with_frames
from edgesim.assembly.parts.own_parts import make_part
from edgesim.costs.errors import CostError
from edgesim.costs.measured_model import MeasuredModel, measure_model
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.model_form import ModelForm
from edgesim.data.arrays import ArrayDataset
from edgesim.data.images import Dataset
from edgesim.errors import EdgesimError, ScenarioError
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.parameters import trainable_first
from edgesim.models.dropout import seed_dropout_
from edgesim.models.errors import ModelError
from edgesim.models.layers import Layers
from edgesim.models.own import OwnModel, OwnModelKind, build_own_model, check_construction
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario.own_parts import OwnPart

_KEY = "model.name"
_EXAMPLE_SAMPLES = 2
CHECKED_SAMPLES = 4  # of the batch by which a model is checked


def make_own_model(
    part: OwnPart,
    options: Mapping[str, Any],
    *,
    input_shape: tuple[int, ...],
    input_dtype: str,
    num_classes: int,
    layers: Layers,
    seed: int,
) -> OwnModel:
    """The initial model of a fleet.

    Raises:
        ScenarioError, ModelError: it can't be made, or can't be trained.
    """

    def make(shape: tuple[int, ...], outputs: int) -> object:
        return make_part(part, _KEY, options, input_shape=shape, num_classes=outputs)

    kind = OwnModelKind(name=str(part), make=make)
    example = torch.zeros((_EXAMPLE_SAMPLES, *input_shape), dtype=getattr(torch, input_dtype))
    if example.is_floating_point():  # zeros would leave many statistics as they are
        example.normal_(generator=torch.Generator().manual_seed(0))
    try:
        return build_own_model(
            kind,
            input_shape=input_shape,
            num_classes=num_classes,
            layers=layers,
            seed=seed,
            example=example,
        )
    except ModelError as error:
        if error.__cause__ is None:
            raise
        where = place_of(error.__cause__)
        said = ModelError(f"{error}{where and f', at {where}'}")
        raise with_frames(said, error.__cause__) from error


def example_batch(
    dataset: Dataset | ArrayDataset, num_samples: int = CHECKED_SAMPLES
) -> tuple[Tensor, Tensor]:
    """A few inputs with targets, of the types and shapes of a dataset; reads no images.

    Images and features are drawn from a normal distribution, so that all values differ.

    Args:
        dataset: with at least one training sample.
        num_samples: of the batch; fewer if the dataset has fewer.
    """
    count = min(num_samples, len(dataset.train))
    if isinstance(dataset, ArrayDataset) and dataset.input_dtype == "int64":
        samples = dataset.train.take(np.arange(count))
        return torch.from_numpy(samples.inputs), torch.from_numpy(samples.labels)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((count, *dataset.image_shape), generator=generator)
    return inputs, torch.from_numpy(dataset.train.labels[:count].copy())


def check_own_model(
    flat: FlatModel, inputs: Tensor, targets: Tensor, num_classes: int | None
) -> tuple[str, ...]:
    """Refuse a model whose step does not depend only on parameters, buffers, batch and seed.

    The check looks at the outputs of a batch. Then it takes a step, a step on other inputs, and the
    first step again, which must give the same bits.

    Args:
        flat: with a model of one's own.
        inputs: a batch of at least two samples.
        targets: of these.
        num_classes: entries that the output of a sample must have; None: the task says.

    Returns:
        A notice of parameters that no gradient reaches, if there are any.

    Raises:
        ScenarioError: the outputs can't be used, or the step differs, fails, or has work that can't
            be counted.
    """
    model = flat.model
    assert isinstance(model, OwnModel), "models of the catalog are known to be repeatable"
    name = model.kind.name
    made: tuple[int, ...] | None = None
    try:
        check_construction(model)
        metered = MeteredModel(flat)
        parameters, buffers = flat.parameters.clone(), flat.buffers.clone()
        others = {key: b for key, b in model.named_buffers() if not b.is_floating_point()}
        before = {key: b.clone() for key, b in others.items()}
        places = {key: b.data_ptr() for key, b in model.named_buffers()}
        made = tuple(_checked_outputs(name, flat, inputs, num_classes).shape)
        flat.load_(parameters, buffers)
        first = _step(metered, inputs, targets)
        _check_parameters(name, flat, parameters)
        _check_buffers(name, model, places, before)
        _step(metered, inputs.flip(0), targets)
        flat.load_(parameters, buffers)
        again = _step(metered, inputs, targets)
    except (CostError, ModelError) as error:
        raise ScenarioError(f"{_KEY}: {error}") from error
    except EdgesimError:
        raise
    except Exception as error:
        step = f"inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}"
        if (key := key_of(error)) is not None:
            said = f"{key}: a training step on {step} {failure(error)}"
        elif made is None:  # a module of torch's is all the model
            said = f"{_KEY}: {name} fails on {step}: {type(error).__name__}: {error}"
        elif "does not require grad" in str(error):
            said = (
                f"{_KEY}: {name} gives outputs without a gradient; compute them of its parameters, "
                "without detach(), no_grad() or another tensor made of their values"
            )
        else:  # the task of the catalog refuses what the model gives
            due = (len(inputs), num_classes)
            needed = f"; must be {due}: a row for each sample" if num_classes else ""
            said = (
                f"{_KEY}: {name} gives outputs of shape {made} that training.task can't take, for "
                f"{step}{needed}: {type(error).__name__}: {error}"
            )
        raise with_frames(ScenarioError(said), error) from error
    gradient = torch.frombuffer(bytearray(first[1]), dtype=torch.float32)
    if not (isfinite(first[0]) and torch.isfinite(gradient).all()):
        raise ScenarioError(
            f"{_KEY}: {name} gives finite outputs, but their loss or its gradient is not finite "
            "(nan or inf); look for a root or a norm of 0, whose gradient is infinite, and at "
            "training.task if it is your own"
        )
    if first != again:
        raise ScenarioError(
            f"{_KEY}: {name} gives another step from the same parameters, batch and seed; keep "
            "state in registered float32 buffers, and draw from torch's global generator alone"
        )
    notices = notices_of_gradients(name, flat, inputs, gradient)
    flat.load_(parameters, buffers)
    return notices


def check_statistics(
    flat: FlatModel, inputs: Tensor, targets: Tensor, algorithm: str, remedy: str
) -> None:
    """Refuse statistics that travel with the parameters where the algorithm makes them diverge.

    Args:
        flat: with a model of one's own; it is as it was afterwards.
        inputs: a batch.
        targets: of these.
        algorithm: that mixes models before the step.
        remedy: what to change, for the message.

    Raises:
        ScenarioError: a step changes a parameter that has no gradient.
    """
    if flat.num_trainable == flat.layout.numel:
        return
    parameters, buffers = flat.parameters.clone(), flat.buffers.clone()
    _step(MeteredModel(flat), inputs, targets)
    moved = flat.parameters != parameters
    flat.load_(parameters, buffers)
    for name, part in zip(flat.layout.names, flat.layout.split(moved), strict=True):
        if part.any():
            raise ScenarioError(
                f"{_KEY}: a step changes {name}, a parameter without a gradient; gossip.algorithm: "
                f"{algorithm} mixes models before the step, so that such statistics can grow "
                f"without bound: {remedy}"
            )


def check_small_batch(flat: FlatModel, inputs: Tensor, targets: Tensor, remedy: str) -> None:
    """Refuse a model that can't take a training step on the smallest batch of a run.

    Norms over a batch can't normalise a single sample, and its variance is not finite.

    Args:
        flat: with a model of one's own; it is as it was afterwards.
        inputs: as many as the smallest batch has.
        targets: of these.
        remedy: what to change, for the message.

    Raises:
        ScenarioError: the step fails, or its gradient is not finite.
    """
    model = flat.model
    assert isinstance(model, OwnModel), "models of the catalog are checked for it"
    parameters, buffers = flat.parameters.clone(), flat.buffers.clone()
    samples = f"{len(inputs)} sample{'s'[: len(inputs) > 1]}"
    try:
        loss, gradient, _ = _step(MeteredModel(flat), inputs, targets)
    except EdgesimError:
        raise
    except Exception as error:
        said = (
            f"{key_of(error) or _KEY}: a training step of {model.kind.name} on a batch of "
            f"{samples}, the last batch of some devices, {failure(error)}\n{remedy}"
        )
        raise with_frames(ScenarioError(said), error) from error
    finally:
        flat.load_(parameters, buffers)
    if not (isfinite(loss) and np.isfinite(np.frombuffer(gradient, np.float32)).all()):
        raise ScenarioError(
            f"{_KEY}: {model.kind.name} has a loss or a gradient that is not finite (nan or inf) "
            f"on a batch of {samples}, the last batch of some devices\n{remedy}"
        )


def check_small_evaluation(flat: FlatModel, inputs: Tensor, few: int) -> None:
    """Refuse a model whose outputs have another shape where an evaluation has few samples left.

    A `squeeze()` without an axis removes that of a batch of one.

    Args:
        flat: with a model of one's own.
        inputs: a batch of at least two samples.
        few: samples of the smallest batch of an evaluation.

    Raises:
        ScenarioError: the model fails on so few, or gives outputs of another shape.
    """
    model = flat.model
    assert isinstance(model, OwnModel), "models of the catalog are checked for it"
    whole = _evaluated(flat, inputs).shape
    wanted = (whole[0] * few // len(inputs), *whole[1:])  # a sample may have several rows
    samples = f"{few} sample{'s'[: few > 1]}, the last batch of an evaluation"
    try:
        made = tuple(_evaluated(flat, inputs[:few]).shape)
    except EdgesimError:
        raise
    except Exception as error:
        said = f"{_KEY}: {model.kind.name} on a batch of {samples}, {failure(error)}"
        raise with_frames(ScenarioError(said), error) from error
    if made != wanted:
        raise ScenarioError(
            f"{_KEY}: {model.kind.name} gives outputs of shape {made} for a batch of {samples}; "
            f"must be {wanted}: name the axis in squeeze(), or keep the first one"
        )


def _evaluated(flat: FlatModel, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        outputs: Tensor = flat.model.eval()(inputs)
    return outputs


def _checked_outputs(name: str, flat: FlatModel, inputs: Tensor, num_classes: int | None) -> Tensor:
    """Outputs of a batch; refuse such as are not finite, and more or fewer than classes.

    Raises:
        ModelError: they are such.
    """
    seed_dropout_(flat.leaf_modules, 0)
    seed_rounding_(flat.leaf_modules, 0)
    with torch.no_grad(), flat.around_step():
        outputs: Tensor = flat.model.train()(inputs)
    is_table = outputs.dim() == 2 and len(outputs) == len(inputs)  # other shapes fail in the task
    if num_classes is not None and is_table and outputs.shape[1] != num_classes:
        raise ModelError(
            f"{name} gives {outputs.shape[1]} numbers for each sample, but the data have "
            f"{num_classes} classes\n"
            "give its last layer num_classes outputs, with which the model is called; a dataset of "
            "your own can set a larger num_classes than its targets show"
        )
    if not torch.isfinite(outputs).all():
        drawn = "" if inputs.dtype == torch.int64 else " drawn from a normal distribution"
        raise ModelError(
            f"{name} gives outputs that are not finite (nan or inf) for inputs of shape "
            f"{tuple(inputs.shape)}{drawn}\n"
            "look in its forward for a division by 0, and for a log or a root of what is not "
            "above 0"
        )
    return outputs


def _step(model: MeteredModel, inputs: Tensor, targets: Tensor) -> tuple[float, bytes, bytes]:
    """Loss, gradient and buffers of one step from fixed seeds."""
    seed_dropout_(model.flat.leaf_modules, 0)
    seed_rounding_(model.flat.leaf_modules, 0)
    loss, gradient, _ = model.loss_and_gradient(inputs, targets)
    return loss, gradient.numpy().tobytes(), model.flat.buffers.numpy().tobytes()


def _check_parameters(name: str, flat: FlatModel, parameters: Tensor) -> None:
    """Refuse trained parameters that a step changes: an optimizer and gossip change them alone."""
    held = flat.layout.unflatten(flat.parameters)
    for (key, parameter), own, before in zip(
        trainable_first(flat.model), held, flat.layout.unflatten(parameters), strict=True
    ):
        if parameter.data_ptr() != own.data_ptr():
            raise ModelError(
                f"{name} replaces its parameter {key} in a step; devices would train the old "
                "one\n"
                "compute with a changed copy, as torch.nn.utils.parametrize does"
            )
        if parameter.requires_grad and not torch.equal(parameter, before):
            raise ModelError(
                f"{name} changes its parameter {key} in a step\n"
                "compute with a changed copy, as torch.nn.utils.parametrize does; statistics are "
                "buffers or parameters with requires_grad=False"
            )


def _check_buffers(
    name: str, model: OwnModel, places: Mapping[str, int], before: Mapping[str, Tensor]
) -> None:
    """Refuse replaced buffers, and changed buffers of integers, which devices do not keep."""
    for key, buffer in model.named_buffers():
        if places.get(key) != buffer.data_ptr():
            raise ModelError(
                f"{name} replaces its buffer {key} in a step; change it in place, as by copy_()"
            )
        is_counter = key.endswith("num_batches_tracked")
        if key in before and not is_counter and not torch.equal(before[key], buffer):
            raise ModelError(
                f"{name} changes its buffer {key} of {buffer.dtype} in a step; devices keep "
                "float32 buffers alone: make it one"
            )


def files_digest_of(flat: FlatModel) -> str:
    """Digest of the files that a model was read from; empty if it says none."""
    inner = flat.model.inner if isinstance(flat.model, OwnModel) else None
    return str(getattr(inner, "files_digest", ""))


def measured_form(flat: FlatModel, form: ModelForm, batch_size: int) -> MeasuredModel:
    """Counts of a model of one's own and of a step on a full batch of zeros.

    Raises:
        ScenarioError: the step can't be counted.
    """
    model = flat.model
    assert isinstance(model, OwnModel), "models of the catalog have closed forms"
    inputs = torch.zeros((batch_size, *form.image_shape), dtype=model.input_dtype)
    try:
        return measure_model(flat, form, inputs)
    except (CostError, ModelError) as error:
        raise ScenarioError(f"{_KEY}: {error}") from error
