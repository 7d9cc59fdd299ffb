"""Evaluates the averaged model and the devices' own models from their snapshots.

Symbols:
    x_i: numerator   u_i: push weight   z_i = x_i/u_i: model of device i
    z_bar = sum_i x_i / sum_i u_i: the consensus model
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import sqrt
from queue import SimpleQueue
from threading import Event
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor

from edgesim.assembly.parts.own_errors import own_code
from edgesim.compression.errors import CompressionError
from edgesim.device.trainer import DivergedError
from edgesim.errors import EdgesimError
from edgesim.learning.flat_model import FlatModel, Quality
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.layers import seed_rounding_
from edgesim.results.columns import CONSENSUS
from edgesim.results.snapshot import Snapshot
from edgesim.streams import StreamPurpose, stream, torch_seed

FurtherGossip = Callable[[Sequence[Snapshot], Callable[[], None]], Sequence[Snapshot]]
"""Mixes copies of devices' states (further_gossip.py); calls its second argument now and then."""

Passes = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Gives a pass over samples in batches, the same each time."""


def consensus_of(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The consensus model as a snapshot: sum(x), sum(u), mean of the local statistics.

    Sums run in double precision in the order of devices, so the result does not depend on who
    finished first. Batch-norm statistics are never gossiped; their plain mean is used. Devices that
    have left or died, or have joined and have no mass yet, have no part in it.
    """
    ordered = _present(snapshots)
    x = torch.zeros_like(ordered[0].x, dtype=torch.float64)
    buffers = torch.zeros_like(ordered[0].buffers, dtype=torch.float64)
    for snapshot in ordered:
        x += snapshot.x
        buffers += snapshot.buffers
    return Snapshot(
        device=CONSENSUS,
        round_index=ordered[0].round_index,
        rounds_done=sum(snapshot.rounds_done for snapshot in ordered) // len(ordered),
        x=x,
        u=sum(snapshot.u for snapshot in ordered),
        buffers=(buffers / len(ordered)).to(ordered[0].buffers.dtype),
        virtual_time_s=_last(snapshot.virtual_time_s for snapshot in ordered),
    )


def _present(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Snapshots of devices that are there and have mass, in the order of devices.

    If none of them is present any more, the final snapshots of all devices with mass.
    """
    with_mass = sorted((s for s in snapshots if s.u > 0), key=lambda s: s.device)
    return [s for s in with_mass if s.gone is None] or with_mass


def _last(times_s: Iterable[float | None]) -> float | None:
    """The latest of several clocks, if there are any."""
    return max((time_s for time_s in times_s if time_s is not None), default=None)


def debiased(snapshot: Snapshot, num_trained: int | None = None) -> Tensor:
    """Model z = x/u in double precision.

    Args:
        snapshot: of the model.
        num_trained: entries of the result: the parameters that have a gradient. Others follow them,
            such as gossiped ranges of 8-bit activations, beside which the distance of trained
            parameters would not be seen. None: all.
    """
    return snapshot.x[:num_trained].double() / snapshot.u


def distances_to(
    center: Snapshot, snapshots: Sequence[Snapshot], num_trained: int | None = None
) -> list[float]:
    """Euclidean distance |z_i - z_bar| of each snapshot's model; `num_trained` as in `debiased`."""
    z_bar = debiased(center, num_trained)
    return [float(torch.linalg.vector_norm(debiased(s, num_trained) - z_bar)) for s in snapshots]


def evaluated_devices(num_devices: int, most: int | None, seed: int) -> list[int]:
    """Devices in the order in which their own models are chosen for evaluation.

    Args:
        num_devices: of the fleet.
        most: number of evaluated devices; None for all, in their order.
        seed: of the scenario.
    """
    if most is None or most >= num_devices:
        return list(range(num_devices))
    rng = stream(seed, StreamPurpose.EVALUATED_DEVICES)
    order: list[int] = rng.permutation(num_devices).tolist()
    return order


def with_totals_so_far(
    rows: Sequence[Mapping[str, Any]], snapshots: Sequence[Snapshot]
) -> list[dict[str, Any]]:
    """Rows of an evaluation with bytes and energy until then, as `load_run` adds them.

    Args:
        rows: the averaged model's and those of devices.
        snapshots: of all devices. A total is left out where one of them does not know it.
    """
    found = [dict(row) for row in rows]
    figures: dict[str, dict[int, float | None]] = {
        "total_sent_bytes": {snapshot.device: snapshot.sent_bytes for snapshot in snapshots},
        "total_energy_j": {snapshot.device: snapshot.energy_j for snapshot in snapshots},
    }
    for name, by_device in figures.items():
        known = [value for value in by_device.values() if value is not None]
        if len(known) == len(by_device):
            for row in found:
                row[name] = sum(known) if row["device"] == CONSENSUS else by_device[row["device"]]
    return found


class EvaluationStoppedError(EdgesimError):
    """The evaluator was closed before it was done."""


class Evaluator:
    """Evaluates models on the test set, several at a time, each on one thread.

    Args:
        models: models to compute with, one per thread.
        make_batches: gives a pass over the test samples, the same each time.
        rounds_per_epoch: to express rounds in epochs.
        seed: of the scenario, for activations that are rounded at random, and for the sample of
            devices.
        most_devices: whose own models are evaluated; None: all.
        own_passes: over the held-out samples of each device that has its own, by device. A device's
            model is evaluated on its own, the consensus model on those of all devices.
        further_gossip: mixes the devices' models before they are evaluated once more; None: they
            are not. The consensus model's row gets the means over devices.

    Attributes:
        distances: distance |z_i - z_bar| of each device's trained parameters in the newest
            evaluation.
    """

    def __init__(
        self,
        models: Sequence[FlatModel],
        make_batches: Passes,
        rounds_per_epoch: int,
        seed: int,
        most_devices: int | None = None,
        own_passes: Mapping[int, Passes] = MappingProxyType({}),
        further_gossip: FurtherGossip | None = None,
    ) -> None:
        self.num_threads = len(models)
        self._num_trained = models[0].num_trainable
        self._most_devices = most_devices
        self._make_batches = make_batches
        self._own_passes = own_passes
        self._further_gossip = further_gossip
        self._rounds_per_epoch = rounds_per_epoch
        self._seed = seed
        self._models: SimpleQueue[FlatModel] = SimpleQueue()
        for model in models:
            self._models.put(model)
        self._pool = ThreadPoolExecutor(len(models), thread_name_prefix="evaluate")
        self._is_closed = Event()
        self.distances: dict[int, float] = {}

    def close(self) -> None:
        """End evaluations under way at their next batch; those who wait get an error."""
        self._is_closed.set()
        self._pool.shutdown()

    def evaluate(
        self,
        snapshots: Sequence[Snapshot],
        *,
        devices_too: bool,
        tell: Callable[[int, int], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of evaluations.parquet for the models of one round.

        Args:
            snapshots: one per device, all of the same round; devices that have left get no row.
            devices_too: evaluate devices' own models beside the consensus model.
            tell: called with the number of models that are done and of all, before the first and
                after each.

        Raises:
            EvaluationStoppedError: `close` was called meanwhile.
        """
        ordered, trained = _present(snapshots), self._num_trained
        center = consensus_of(ordered)
        distances = distances_to(center, ordered, trained)
        self.distances = {s.device: d for s, d in zip(ordered, distances, strict=True)}
        spread = sqrt(sum(d * d for d in distances) / len(distances))
        subjects, mixed = [(center, spread)], []
        if devices_too:
            chosen = self._chosen(snapshots, {snapshot.device for snapshot in ordered})
            pairs = zip(ordered, distances, strict=True)
            subjects += [pair for pair in pairs if pair[0].device in chosen]
            mixed = [pair for pair in self._mixed(ordered) if pair[0].device in chosen]
        evaluated = [snapshot for snapshot, _ in subjects + mixed]
        results = self._evaluate_all(evaluated, tell or (lambda *_: None))
        columns = self._after_gossip(mixed, [result for result, _ in results[len(subjects) :]])
        return [
            {
                "round": snapshot.rounds_done,
                "epoch": snapshot.rounds_done / self._rounds_per_epoch,
                "model": "consensus" if snapshot.device == CONSENSUS else "device",
                "device": snapshot.device,
                "accuracy": result.accuracy,
                "loss": result.loss,
                "consensus_distance": distance,
                "model_norm": float(torch.linalg.vector_norm(debiased(snapshot, trained))),
                "virtual_time_s": snapshot.virtual_time_s,
                **result.metrics,
                **own,
                **columns.get(snapshot.device, {}),
            }
            for (snapshot, distance), (result, own) in zip(subjects, results, strict=False)
        ]

    def _evaluate_all(
        self, snapshots: Sequence[Snapshot], tell: Callable[[int, int], None]
    ) -> list[tuple[Quality, dict[str, float | None]]]:
        """Evaluations of models in their order, each with figures on own samples."""
        tell(0, len(snapshots))
        try:
            under_way = self._pool.map(self._evaluate_one, snapshots)
        except RuntimeError as error:  # raised by a pool that was shut down meanwhile
            if not self._is_closed.is_set():
                raise
            raise EvaluationStoppedError("the evaluation was stopped") from error
        results = []
        for result in under_way:
            results.append(result)
            tell(len(results), len(snapshots))
        return results

    def _mixed(self, ordered: Sequence[Snapshot]) -> list[tuple[Snapshot, float]]:
        """The devices' models after further gossip, each with its distance to their average."""
        if self._further_gossip is None:
            return []
        try:
            mixed = self._further_gossip(ordered, self._check_open)
        except CompressionError as error:
            raise DivergedError(
                f"further gossip after round {ordered[0].round_index} diverged: {error}; "
                "lower gossip.averaging_rate"
            ) from error
        return list(
            zip(mixed, distances_to(consensus_of(mixed), mixed, self._num_trained), strict=True)
        )

    def _after_gossip(
        self, mixed: Sequence[tuple[Snapshot, float]], results: Sequence[Quality]
    ) -> dict[int, dict[str, float | None]]:
        """Columns of evaluations after further gossip, by device, with their means."""
        if self._further_gossip is None:
            return {}
        if not mixed:  # only the averaged model is evaluated
            return {CONSENSUS: dict.fromkeys(map(_after_gossip_name, ("accuracy", "loss")))}
        rows = {
            snapshot.device: result.figures | {"consensus_distance": distance}
            for (snapshot, distance), result in zip(mixed, results, strict=True)
        }
        means = _means(list(rows.values()))
        means["consensus_distance"] = sqrt(sum(d * d for _, d in mixed) / len(mixed))
        return {
            device: {_after_gossip_name(name): value for name, value in figures.items()}
            for device, figures in {CONSENSUS: means, **rows}.items()
        }

    def _check_open(self) -> None:
        if self._is_closed.is_set():
            raise EvaluationStoppedError("the evaluation was stopped")

    def _chosen(self, snapshots: Sequence[Snapshot], present: set[int]) -> set[int]:
        """Devices whose models are evaluated, of those that have not left."""
        order = evaluated_devices(len(snapshots), self._most_devices, self._seed)
        return set([device for device in order if device in present][: self._most_devices])

    def _evaluate_one(self, snapshot: Snapshot) -> tuple[Quality, dict[str, float | None]]:
        """A model on the common samples, and the mean over devices' own samples."""
        model, said = self._models.get(), _subject(snapshot)
        try:
            with own_code(f"in the evaluation of {said}"):
                return self._evaluate_with(model, snapshot)
        finally:
            self._models.put(model)

    def _evaluate_with(
        self, model: FlatModel, snapshot: Snapshot
    ) -> tuple[Quality, dict[str, float | None]]:
        model.load_(debiased(snapshot), snapshot.buffers)
        seeds = rounding_seeds(self._seed, snapshot.device, snapshot.round_index)
        is_mean = snapshot.device == CONSENSUS
        passes = list(self._own_passes.values()) if is_mean else []
        if snapshot.device in self._own_passes:
            passes = [self._own_passes[snapshot.device]]
        try:
            common, *own = (
                model.evaluate(seeded(model, self._until_closed(each), seeds))
                for each in (self._make_batches, *passes)
            )
        except NonFiniteError as error:
            raise DivergedError(
                f"{_subject(snapshot)} diverged: {error}; "
                "lower training.optimizer.lr or gossip.averaging_rate"
            ) from error
        return common, _own_figures(common, own) if self._own_passes else {}

    def _until_closed(self, passes: Passes) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of a pass until `close`."""
        for batch in passes():
            self._check_open()
            yield batch


def rounding_seeds(seed: int, device: int, round_index: int) -> Iterator[int]:
    """Seeds of the rounding in each batch that a model sees in an evaluation.

    Args:
        seed: of the scenario.
        device: whose model it is.
        round_index: of the evaluation.
    """
    purpose = StreamPurpose.EVALUATION_ROUNDING
    return count(torch_seed(seed, purpose, device - CONSENSUS, round_index))


def seeded(
    model: FlatModel, batches: Iterable[tuple[Tensor, Tensor]], seeds: Iterator[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches for a model, which rounds each with noise of its own."""
    for batch in batches:
        seed_rounding_(model.leaf_modules, next(seeds))
        yield batch


def _subject(snapshot: Snapshot) -> str:
    """Whose model it is, in messages."""
    device = snapshot.device
    whose = "averaged model" if device == CONSENSUS else f"model of device {device}"
    return f"the {whose} after round {snapshot.round_index}"


def _own_figures(common: Quality, own: Sequence[Quality]) -> dict[str, float | None]:
    """Means over devices of what a model reaches on their own samples, by column."""
    names = common.figures
    means = _means([each.figures for each in own]) if own else dict.fromkeys(names)
    return {f"own_{name}": means[name] for name in names}


def _means(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Mean of each figure; None of one that the task does not have."""
    return {
        name: None if value is None else sum(cast("float", row[name]) for row in rows) / len(rows)
        for name, value in rows[0].items()
    }


def _after_gossip_name(figure: str) -> str:
    return f"after_gossip_{figure}"
