"""A scenario that has passed every check, with its data, ready to be run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.build import Compute, DataSpec
from edgesim.assembly.parts.own_topology import own_schedule
from edgesim.assembly.rate_search.search import FoundRate
from edgesim.assembly.training_plan import TrainingPlan
from edgesim.data.arrays import ArrayDataset, Shard
from edgesim.data.images import Dataset
from edgesim.data.photographs import Photographs, middle_squares, photographs_of
from edgesim.learning.parameters import ParameterLayout
from edgesim.models.start_values import StartValues
from edgesim.scenario.metrics import MetricsSection
from edgesim.scenario.own_parts import own_parts
from edgesim.scenario.recovery import RecoverySection
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import OtherTopology
from edgesim.streams import StreamPurpose, stream
from topologies import Schedule, graphs_in_words

SAMPLE_OF_IMAGES = 64  # of each split, read by `validate`


@dataclass(frozen=True)
class PreparedRun:
    """A scenario that has passed every check, with its data; nothing is started or written yet.

    Only images in use are read, when they are needed. The averaging rate is a number; if the file
    has `auto`, `found_rate` says how it was found. `held_out` has the positions of each device's
    own test samples; it is empty if no device has any. `files_digest` is that of the files that the
    model was read from; empty if there are none. `notices` say what parts of one's own did when
    they were tried, if it is allowed and easily overlooked. `start` has the values that the model
    begins with, if they are not random. `own_notices` are those of the notices that tell of parts
    of one's own: the summary keeps them, since nothing else that is kept says them.
    """

    scenario: Scenario
    schedule: Schedule
    dataset: Dataset | ArrayDataset
    indices: tuple[NDArray[np.int64], ...]
    training: TrainingPlan
    layout: ParameterLayout
    found_rate: FoundRate | None = None
    held_out: tuple[NDArray[np.int64], ...] = ()
    files_digest: str = ""
    notices: tuple[str, ...] = ()
    start: StartValues | None = None
    own_notices: tuple[str, ...] = ()

    @cached_property
    def data(self) -> DataSpec:
        """What devices know of the dataset."""
        data = self.dataset
        return DataSpec(data.image_shape, data.num_classes, data.mean, data.std, data.input_dtype)

    def shards(self) -> list[Shard]:
        """Each device's own samples, in the order of devices."""
        used = self._train_samples
        return [used.take(np.searchsorted(self._used, indices)) for indices in self.indices]

    def shard_bytes(self) -> list[int]:
        """Bytes of each device's inputs and targets."""
        used = self._train_samples if self._has_photographs else None
        if not isinstance(used, Photographs):
            return [len(indices) * self.dataset.bytes_per_sample for indices in self.indices]
        of_image = used.sizes_N2.prod(axis=1) * used.channels + used.labels.itemsize
        places = (np.searchsorted(self._used, indices) for indices in self.indices)
        return [int(of_image[chosen].sum()) for chosen in places]

    def digest(self, compute: Compute) -> str:
        """Digest of all that determines the result: scenario, samples, accelerator and back end."""
        digest = blake2b(digest_size=16)
        no_part = {"recovery": RecoverySection(), "metrics": MetricsSection(), "paper": None}
        scenario = self.scenario.model_copy(update=no_part)
        digest.update(scenario.model_dump_json().encode())
        digest.update(repr((compute, self.data)).encode())
        digest.update(self.files_digest.encode())
        if self.start is not None:
            digest.update(self.start.digest.encode())
        for key, part in own_parts(scenario):
            digest.update(f"{key} {part.digest}".encode())
        for indices in self.indices:  # a partition may read files and columns
            digest.update(np.array([len(indices), *indices], np.int64).data)
        for path in self.graph_files():
            digest.update(path.read_bytes())
        digest.update((self.graphs_digest or "").encode())
        digest.update(self._used.data)
        digest.update("".join(self.sample_digests.values()).encode())
        for indices in self.held_out:
            digest.update(np.array([len(indices), *indices], np.int64).data)
        for array in self._held_out_samples.contents if self.held_out else ():
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @cached_property
    def sample_digests(self) -> dict[str, str]:
        """Digests of the training samples that some device has and of the test samples."""
        return {"training": _digest_of(self._train_samples), "test": self.test_digest}

    @cached_property
    def test_digest(self) -> str:
        """Digest of the test samples."""
        return _digest_of(self.test_samples())

    @cached_property
    def graphs_digest(self) -> str | None:
        """Digest of the graphs that a topology of one's own gives; None without such a topology.

        Its code is known elsewhere, but it may read a file.
        """
        section = self.scenario.topology
        if not isinstance(section, OtherTopology):
            return None
        graphs = graphs_in_words(own_schedule(self.scenario, section))
        return blake2b(graphs.encode(), digest_size=16).hexdigest()

    def graph_files(self) -> Iterator[Path]:
        """Files that the graphs are read from."""
        return paths_in(self.scenario.topology.model_dump())

    @property
    def num_test_samples(self) -> int:
        """Samples that models are evaluated on."""
        there, wanted = len(self.dataset.test), self.scenario.evaluation.samples
        return there if wanted is None else min(wanted, there)

    def test_samples(self) -> Shard:
        """The samples that models are evaluated on."""
        return self._test_samples

    @property
    def test_labels(self) -> NDArray[Any]:
        """Their classes or other targets; images are not read for them."""
        labels: NDArray[Any] = self.dataset.test.labels[self._tested]
        return labels

    def own_test_samples(self) -> dict[int, Shard]:
        """Each device's own test samples, by device; of those that have some."""
        if not self.held_out:
            return {}
        used = np.unique(np.concatenate(self.held_out))
        return {
            device: self._held_out_samples.take(np.searchsorted(used, indices))
            for device, indices in enumerate(self.held_out)
            if len(indices)
        }

    def read_images(self) -> None:
        """Read all images that a run uses.

        Raises:
            DataError: one of them can't be read.
        """
        _ = self._train_samples, self._test_samples, self.data
        if self.held_out:
            _ = self._held_out_samples

    def read_some_images(self) -> None:
        """Read a few of the images that a run uses, evenly from all of them.

        Raises:
            DataError: one of them can't be read.
        """
        for samples, used in ((self.dataset.train, self._used), (self.dataset.test, self._tested)):
            step = max(len(used) // SAMPLE_OF_IMAGES, 1)
            samples.take(used[::step][:SAMPLE_OF_IMAGES])

    @cached_property
    def _used(self) -> NDArray[np.int64]:
        """Positions of the training samples that some device has, increasing."""
        return np.unique(np.concatenate(self.indices))

    @cached_property
    def _tested(self) -> NDArray[np.int64]:
        """Positions of the test samples, in the order in which models see them."""
        there = len(self.dataset.test)
        if self.num_test_samples == there:
            return np.arange(there)
        # The same for every seed: accuracies of several seeds are compared with each other.
        rng = stream(0, StreamPurpose.PARTITION, device=1)
        return rng.permutation(there)[: self.num_test_samples]

    @cached_property
    def _train_samples(self) -> Shard:
        if self._has_photographs and isinstance(self.dataset, Dataset):
            return photographs_of(self.dataset.train, self._used)
        return self.dataset.train.take(self._used)

    @cached_property
    def _test_samples(self) -> Shard:
        return self._of_test(self._tested)

    @property
    def _has_photographs(self) -> bool:
        """Whether images keep their aspect ratio until crops are taken of them."""
        return self.scenario.data.augment == "resized_crop_flip"

    def _of_test(self, indices: NDArray[np.int64]) -> Shard:
        """Some test samples."""
        if self._has_photographs and isinstance(self.dataset, Dataset):
            return middle_squares(self.dataset.test, indices)
        return self.dataset.test.take(indices)

    @cached_property
    def _held_out_samples(self) -> Shard:
        """Test samples that are some device's own, in the order of the split."""
        return self._of_test(np.unique(np.concatenate(self.held_out)))


def _digest_of(samples: Shard) -> str:
    digest = blake2b(digest_size=16)
    for array in samples.contents:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def paths_in(options: object) -> Iterator[Path]:
    """Files that a topology is read from."""
    match options:
        case {**keys}:
            for key, value in keys.items():
                if key == "path" and isinstance(value, str):
                    yield Path(value)
                else:
                    yield from paths_in(value)
        case list() | tuple():
            for option in options:
                yield from paths_in(option)
