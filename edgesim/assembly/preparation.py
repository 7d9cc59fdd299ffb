"""Checks a scenario and makes everything that a run needs, without starting or writing anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgesim.assembly.build import (
    PLAIN,
    check_length,
    image_shape_of,
    make_flat_model,
    make_layers,
    make_task,
    name_devices,
    plain_task,
)
from edgesim.assembly.equipment import check_hardware
from edgesim.assembly.gossip import algorithm_named
from edgesim.assembly.known_data import can_resize_images, open_data
from edgesim.assembly.partitions import deal, notices_of_owners, notices_of_skew
from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.parts.own_data import as_classes, contents_digest, notices_of_classes
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.parts.own_model import (
    CHECKED_SAMPLES,
    check_own_model,
    check_small_batch,
    check_small_evaluation,
    check_statistics,
    example_batch,
    files_digest_of,
)
from edgesim.assembly.planned_leaves import check_leaves
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.assembly.rate_search.search import with_found_rate
from edgesim.assembly.rehearsal.rehearsal import rehearse
from edgesim.assembly.rehearsal.rehearsal_of_task import check_task_targets, rehearse_task
from edgesim.assembly.start_files import notices_of_start
from edgesim.assembly.training_plan import check_rounds, plan_training
from edgesim.data.arrays import ArrayDataset
from edgesim.data.images import Dataset
from edgesim.data.shape import DataShape
from edgesim.errors import ScenarioError, with_notes
from edgesim.gossip.optional_members import mixes_first
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.tasks import Classification, Targets
from edgesim.models.catalog import MODELS, check_model
from edgesim.models.errors import ModelError
from edgesim.models.kind import ModelSize
from edgesim.models.norms import NORMS
from edgesim.models.resnet import initialize_resnet_
from edgesim.models.start_values import StartValues, StartValuesError, read_start_values
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.schema import Scenario


@own_code("before the run")
def prepare(
    scenario: Scenario,
    *,
    goes_on: bool = False,
    reads_images: bool = True,
    start: StartValues | None = None,
) -> PreparedRun:
    """Check a scenario against its graph, data and model, and deal out the samples.

    Cheap checks come first. Time and memory of all checks are bounded for every scenario, except
    for reading images.

    Args:
        scenario: that is to be run.
        goes_on: the run has begun already, so checks of plans that the user could still change are
            skipped.
        reads_images: read all images that the run uses, so that it cannot fail later for a broken
            one; otherwise read a few.
        start: values with which the run began; None: those of the file that the scenario names, if
            it names one.

    Raises:
        ScenarioError, DataError, PartitionError: what can't work, where, and what to change.
    """
    check_rounds(scenario, scenario.training.rounds or scenario.training.epochs or 0)
    dataset = open_data(scenario.data)
    if not goes_on:
        _check_repeats(scenario, dataset)
        _check_initialization(scenario)
    _check_sizes(scenario, dataset)
    _check_targets(scenario, dataset)
    scenario, schedule = name_devices(scenario)
    indices, own_tests = deal(scenario, dataset)
    training = plan_training(scenario, fmean(len(i) for i in indices))
    check_rounds(scenario, training.num_rounds)
    check_hardware(scenario, schedule)
    _check_augmentation(scenario, dataset)
    start = start or _start_values(scenario)
    (model, of_model), batch = _check_model(scenario, dataset, start), example_batch(dataset)
    _check_statistics(scenario, model, batch)
    _check_small_batch(scenario, dataset, model, [len(i) for i in indices], training.num_rounds)
    _check_small_evaluation(scenario, dataset, model, [len(i) for i in own_tests])
    num_epochs = ceil(training.num_rounds / training.rounds_per_epoch)
    own_notices = of_model + rehearse(scenario, schedule, model, batch, num_epochs)
    notices = own_notices + notices_of_skew(scenario, dataset, indices)
    notices += notices_of_owners(scenario, dataset, own_tests)
    if start is not None:
        notices += notices_of_start(start, scenario.model, dataset.mean, dataset.std)
    if _is_classification(scenario):
        notices += notices_of_classes(dataset, scenario.data.evaluated)
    check_length(scenario, schedule, training.num_rounds)
    if not goes_on:
        check_leaves(scenario.fleet, schedule, training.num_rounds)
    shape = DataShape.of(dataset)
    scenario, found_rate = with_found_rate(scenario, shape, schedule)
    prepared = PreparedRun(
        scenario,
        schedule,
        dataset,
        indices,
        training,
        model.layout,
        found_rate,
        own_tests,
        files_digest_of(model),
        notices,
        start,
        own_notices,
    )
    if reads_images:
        prepared.read_images()
    else:
        prepared.read_some_images()
    return prepared


_repeated: set[str] = set()  # datasets that were the same when they were made again


def _check_repeats(scenario: Scenario, dataset: Dataset | ArrayDataset) -> None:
    """Refuse a dataset of one's own that differs when it is made again.

    It is made again once in a process, which cells of a sweep share.
    """
    section = scenario.data
    key = repr((section.source, section.options, section.path)) if is_own(section.source) else ""
    if not key or key in _repeated:
        return
    if contents_digest(dataset) != contents_digest(open_data(scenario.data)):
        raise ScenarioError(
            f"data.source: {scenario.data.source} gives other samples or columns when it is made "
            "again, so no run could be repeated or resumed; draw from a fixed seed"
        )
    _repeated.add(key)


def _check_targets(scenario: Scenario, dataset: Dataset | ArrayDataset) -> None:
    """Refuse targets that do not fit the task."""
    wanted = check_task_targets(plain_task(scenario))
    labels = dataset.train.labels
    if wanted and (labels.dtype != wanted.dtype or labels.ndim not in wanted.dimensions):
        raise ScenarioError(
            f"training.task is {scenario.training.task}: a target must be {wanted.description}; "
            f"those of {dataset.name} are {labels.dtype} of shape {labels.shape[1:]}: "
            f"{_remedy_of_targets(scenario, labels, wanted)}, or data.source"
        )


def _remedy_of_targets(scenario: Scenario, labels: NDArray[Any], wanted: Targets) -> str:
    """What to write so that targets fit the task, or the task the targets."""
    is_class, written = wanted == Classification.targets, ""
    if is_class:
        written = as_classes(labels)
    elif wanted.dtype == "float32" and labels.dtype == np.int64:
        is_table = str(scenario.data.source) == "table"
        written = "data.options.target_is: quantities" if is_table else 'y.astype("float32")'
    are_quantities = is_class and labels.dtype == np.float32
    choice = f"choose {'training.task: regression' if are_quantities else 'another task'}"
    return f"give {written}, or {choice}" if written else choice


def _is_classification(scenario: Scenario) -> bool:
    return type(make_task(scenario)) is Classification


def _check_augmentation(scenario: Scenario, dataset: Dataset | ArrayDataset) -> None:
    """Refuse changes of what is no image, and square crops of images that are no squares."""
    augment, shape = scenario.data.augment, dataset.image_shape
    if augment == "none":
        return
    if isinstance(dataset, ArrayDataset):
        raise ScenarioError(
            f"data.augment is {augment}, which changes images of bytes; inputs of {dataset.name} "
            f"are {dataset.input_dtype} of shape {shape}: give uint8 of shape (N, H, W, C), or a "
            "transform of your own (docs/own-dataset.md) and data.augment: none"
        )
    if augment == "resized_crop_flip" and shape[1] != shape[2]:
        given = ", or give data.image_size" if can_resize_images(scenario.data) else ""
        raise ScenarioError(
            f"data.augment is resized_crop_flip, which takes square crops of images; inputs of "
            f"{dataset.name} have shape {shape}: choose another{given}"
        )


def _start_values(scenario: Scenario) -> StartValues | None:
    """Values of the file that the scenario names.

    Raises:
        ScenarioError: they can't be read.
    """
    if scenario.model.start_from is None:
        return None
    try:
        return read_start_values(Path(scenario.model.start_from))
    except StartValuesError as error:
        raise ScenarioError(f"model.start_from: {error}") from error


def _check_model(
    scenario: Scenario, dataset: Dataset | ArrayDataset, start: StartValues | None
) -> tuple[FlatModel, tuple[str, ...]]:
    """The initial model, after a check that it takes the inputs, and notices of it and the task.

    Raises:
        ScenarioError: it can't, or it is one's own and can't be trained repeatably.
    """
    section = scenario.model
    try:
        if not isinstance(section.name, OwnPart):
            layers, size = make_layers(scenario, PLAIN), ModelSize(section.depth, section.width)
            shape, can_resize = image_shape_of(dataset), can_resize_images(scenario.data)
            check_model(section.name, shape, layers, size, can_resize=can_resize)
        model = make_flat_model(scenario, dataset, PLAIN, start)
    except StartValuesError as error:
        raise ScenarioError(f"model.start_from: {error}") from error
    except ModelError as error:
        raise with_notes(ScenarioError(f"model: {error}"), error) from error
    notices: tuple[str, ...] = ()
    if is_own(scenario.training.task):
        notices = rehearse_task(lambda: plain_task(scenario), model, *example_batch(dataset))
    if isinstance(section.name, OwnPart):
        # Other tasks have outputs of other shapes, which they check themselves.
        num_classes = dataset.num_classes if _is_classification(scenario) else None
        notices += check_own_model(model, *example_batch(dataset), num_classes)
    return model, notices


def _check_initialization(scenario: Scenario) -> None:
    """Refuse a scale of 0 before the ReLU that ends a residual branch: no gradient gets through."""
    section = scenario.model
    if isinstance(section.name, OwnPart) or section.initialization == "full_precision":
        return
    ends_with_zero = MODELS[section.name].initialize_low_precision_ is initialize_resnet_
    if ends_with_zero and NORMS[section.norm_used].is_rectified:
        raise ScenarioError(
            "model.initialization is low_precision: it sets the scale of the last norm of each "
            f"residual branch to 0, and the ReLU of norm {section.norm_used} lets no gradient "
            "through there, so the branches would never learn; choose full_precision, or norm "
            "evonorm_s0 or range_evonorm"
        )


def _check_statistics(scenario: Scenario, model: FlatModel, batch: tuple[Tensor, Tensor]) -> None:
    """Refuse statistics of a model of one's own that the algorithm can't gossip."""
    if isinstance(scenario.model.name, OwnPart) and mixes_first(algorithm_named(scenario)):
        name, remedy = str(scenario.gossip.algorithm), "make it a buffer, which devices keep"
        check_statistics(model, *batch, name, remedy)


def _check_small_batch(
    scenario: Scenario,
    dataset: Dataset | ArrayDataset,
    model: FlatModel,
    shard_sizes: Sequence[int],
    num_rounds: int,
) -> None:
    """Let a model of one's own take a step on the smallest batch that will occur.

    Raises:
        ScenarioError: it can't.
    """
    size = scenario.data.batch_size
    smallest = _smallest_batch(shard_sizes, size, num_rounds)
    if not isinstance(scenario.model.name, OwnPart) or smallest >= CHECKED_SAMPLES:
        return
    remedy = "let the model have a norm over each sample, as nn.GroupNorm"
    larger = range(size + 1, min(2 * size, max(shard_sizes)) + 1)
    better = (each for each in larger if _smallest_batch(shard_sizes, each, num_rounds) > smallest)
    if (found := next(better, None)) is not None:
        remedy = f"set data.batch_size: {found}, which leaves larger batches, or {remedy}"
    check_small_batch(model, *example_batch(dataset, smallest), remedy)


def _check_small_evaluation(
    scenario: Scenario,
    dataset: Dataset | ArrayDataset,
    model: FlatModel,
    own_sizes: Sequence[int],
) -> None:
    """Let a model of one's own evaluate the smallest batch that will occur.

    Args:
        scenario: of the run.
        dataset: whose test samples are used.
        model: the initial one.
        own_sizes: numbers of devices' own test samples; empty without such.

    Raises:
        ScenarioError: it can't.
    """
    size, wanted = scenario.evaluation.batch_size, scenario.evaluation.samples
    sizes = [len(dataset.test) if wanted is None else wanted, *filter(None, own_sizes)]
    smallest = min(each % size or size for each in sizes)
    if isinstance(scenario.model.name, OwnPart) and smallest < CHECKED_SAMPLES:
        check_small_evaluation(model, example_batch(dataset)[0], smallest)


def _smallest_batch(shard_sizes: Iterable[int], batch_size: int, num_rounds: int) -> int:
    """Samples of the smallest batch of a training; the last of a shard may not be reached."""
    return min(
        each % batch_size or batch_size if ceil(each / batch_size) <= num_rounds else batch_size
        for each in shard_sizes
    )


def _check_sizes(scenario: Scenario, dataset: Dataset | ArrayDataset) -> None:
    """Refuse more samples than exist and more devices than samples; before a graph is built."""
    num_train, num_test = len(dataset.train), len(dataset.test)
    evaluated = scenario.data.evaluated
    limits = {
        "data.train_samples": (scenario.data.train_samples, num_train, "training samples"),
        "evaluation.samples": (scenario.evaluation.samples, num_test, evaluated),
        "fleet.devices": (scenario.fleet.num_devices, num_train, "training samples"),
    }
    for key, (wanted, there, kind) in limits.items():
        if wanted is not None and wanted > there:
            raise ScenarioError(f"{key} is {wanted}, but there are only {there} {kind}; lower it")
