"""What a run of the paper lacks, and why: looks at a finished run, and trainings without edgesim.

    python benchmarks/paper_controls.py devices RUN     distance, ranges and gossip of its devices
    python benchmarks/paper_controls.py noise RUN       its average, and noise of their distance
    python benchmarks/paper_controls.py pooled RUN      its averaged model, trained on in one place
    python benchmarks/paper_controls.py plain CIFAR     ResNet-20 with batch norms in plain torch
    python benchmarks/paper_controls.py plain CIFAR --again    the same, images through JPEG again
    python benchmarks/paper_controls.py plain CIFAR --evonorm  with EvoNorm-S0, four epochs
    python benchmarks/paper_controls.py plain CIFAR --epochs 100    batch norms for longer than 15

RUN is the folder of a run of `paper/table2a_norms` that has ended; CIFAR holds Parquet files of
images in any format. A training takes a quarter to half an hour of a core.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from cifar_files import MEAN, PADDING, STD, read
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import edgesim
from edgesim.assembly.build import choose_compute, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.data.batches import passes_over
from edgesim.data.images import LabelledImages
from edgesim.learning.flat_model import FlatModel
from edgesim.models.evonorm import EvoNormS0
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario.gossip import ChocoGossip, DeepSqueezeGossip
from edgesim.streams import StreamPurpose, stream

POOLED = (0.1,) * 4 + (0.01,) * 3 + (0.001,) * 2  # learning rate of each epoch
NOISES = 3  # draws
FIRST = (0.01, 0.1, 0.1, 0.1)  # of the paper's schedule
PLAIN = (0.1, 8), (0.01, 4), (0.001, 3)  # rates, and of 15 epochs those with each


class Run:
    """The final models of a run, and a model to evaluate them with."""

    def __init__(self, folder: Path) -> None:
        run = edgesim.load_run(folder)
        if not run.models:
            raise SystemExit(f"{folder}: no final models; resume the run to its end")
        scenario = run.scenario
        if not isinstance(scenario.gossip, ChocoGossip | DeepSqueezeGossip):
            raise SystemExit(
                f"{folder}: is of {scenario.gossip.algorithm}; must be of choco or deepsqueeze"
            )
        self.topology, self.rate = scenario.topology.kind, scenario.gossip.averaging_rate
        self.prepared = prepare(scenario)
        data = self.prepared.data
        self.model: FlatModel = make_flat_model(scenario, data, choose_compute(scenario, 0))
        self.trained = self.model.num_trainable
        self.z = torch.stack([torch.from_numpy(run.models[d].z) for d in sorted(run.models)])
        self.average = torch.from_numpy(run.models.consensus.z)

    def accuracy(self, z: Tensor) -> float:
        """Of a model, in per cent of all test images."""
        self.model.load_(z.float(), self.model.buffers.clone())
        return self.accuracy_now()

    def accuracy_now(self) -> float:
        """Of the parameters that are in the model."""
        data = self.prepared.data
        seed_rounding_(self.model.leaf_modules, 1)
        batches = passes_over(self.prepared.test_samples(), 500, data.mean, data.std)
        accuracy = self.model.evaluate(batches).accuracy
        assert accuracy is not None, "a classification"
        return 100 * accuracy

    def distance(self, z: Tensor) -> float:
        """Consensus distance of the trained parameters."""
        off = (z - z.mean(0))[:, : self.trained]
        return float(off.square().sum(1).mean().sqrt())


def show_devices(run: Run) -> None:
    """Accuracies with ranges exchanged, and after rounds of gossip without compression."""
    if run.topology != "directed_ring" or not isinstance(run.rate, float):
        raise SystemExit("the gossip here is that of a directed ring with a rate that is a number")
    print(f"average {run.accuracy(run.average):.2f}, distance {run.distance(run.z):.3f}")
    for device, z in enumerate(run.z):
        exchanged = z.clone(), run.average.clone()
        exchanged[0][run.trained :] = run.average[run.trained :]
        exchanged[1][run.trained :] = z[run.trained :]
        own, average = (run.accuracy(model) for model in exchanged)
        print(
            f"device {device}: {run.accuracy(z):.2f}, with the average's ranges {own:.2f}; "
            f"the average with its ranges {average:.2f}"
        )
    size = len(run.z)
    mixing = (torch.eye(size) + torch.eye(size).roll(1, 0)).double() / 2  # directed ring
    step = torch.eye(size) + run.rate * (mixing - torch.eye(size))
    for rounds in (50, 200, 1000):
        mixed = torch.linalg.matrix_power(step, rounds) @ run.z
        mean = np.mean([run.accuracy(z) for z in mixed])
        print(f"{rounds} rounds of gossip: mean {mean:.2f}, distance {run.distance(mixed):.3f}")


def add_noise(run: Run) -> None:
    """Accuracy of the average with noise in each tensor as far from it as the devices are.

    Statistics, such as gossiped ranges, stay as they are.
    """
    devices = np.mean([run.accuracy(z) for z in run.z])
    print(f"average {run.accuracy(run.average):.2f}, devices {devices:.2f}")
    print(f"distance {run.distance(run.z):.3f}")
    off = (run.z - run.average)[:, : run.trained]
    for draw in range(NOISES):
        generator = torch.Generator().manual_seed(draw)
        noisy, start = run.average.clone(), 0
        for size in run.prepared.layout.sizes:
            if start >= run.trained:
                break
            part = slice(start, start + size)
            noise = torch.randn(size, generator=generator)
            length = off[:, part].square().sum(1).mean().sqrt()
            noisy[part] += noise / noise.norm() * length
            start += size
        print(f"average with noise, draw {draw}: {run.accuracy(noisy):.2f}")


def train_pooled(run: Run) -> None:
    """Train the averaged model on all images: SGD as the run's, batches of 64."""
    images, model = run.prepared.dataset.train, run.model
    assert isinstance(images, LabelledImages)
    model.load_(run.average.float(), model.buffers.clone())
    x, momentum = model.parameters[: run.trained], torch.zeros(run.trained)
    rng, steps = stream(5, StreamPurpose.BATCH), 0
    for epoch, rate in enumerate(POOLED):
        for inputs, labels in batches(images.images_NHWC, images.labels, 64, rng):
            seed_rounding_(model.leaf_modules, steps)
            _, gradient = model.loss_and_gradient(inputs, labels)
            change = gradient[: run.trained] + 1e-4 * x
            momentum.mul_(0.9).add_(change)
            x.sub_(rate * (change + 0.9 * momentum))
            steps += 1
        print(f"epoch {epoch + 1}, rate {rate:g}: {run.accuracy_now():.2f}", flush=True)


@dataclass(frozen=True)
class Norm:
    """How activations are normalised, and what follows; EvoNorm has its gate within."""

    make: Callable[[int], nn.Module]
    gate: nn.Module


BATCH_NORM, EVONORM = Norm(nn.BatchNorm2d, nn.ReLU()), Norm(EvoNormS0, nn.Identity())


class Block(nn.Module):
    """Basic block of a ResNet, with a projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            norm.make(outputs),
            norm.gate,
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            norm.make(outputs),
        )
        projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        same, other = nn.Identity(), nn.Sequential(projection, norm.make(outputs))
        self.skip = same if inputs == outputs else other
        self.gate = norm.gate

    def forward(self, x: Tensor) -> Tensor:
        """Activations of the block."""
        y: Tensor = self.gate(self.branch(x) + self.skip(x))
        return y


def train_plain(folder: Path, *, again: bool, evonorm: bool, epochs: int) -> None:
    """ResNet-20 by SGD with the paper's settings.

    Batches of 128 in bfloat16 with batch norms, of 256 in fp32 with EvoNorm-S0.
    """
    plain = tuple(rate for rate, of_15 in PLAIN for _ in range(epochs * of_15 // 15))
    norm, size, rates = (EVONORM, 256, FIRST) if evonorm else (BATCH_NORM, 128, plain)
    torch.manual_seed(3)
    (images, labels), (tests, answers) = (
        read(folder / "train.parquet"),
        read(folder / "test.parquet"),
    )
    if again:
        images, tests = compressed_again(images), compressed_again(tests)
    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    blocks = [Block(*pair, norm) for pair in pairwise(widths)]
    stem = (nn.Conv2d(3, 16, 3, 1, 1, bias=False), norm.make(16), norm.gate)
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model = nn.Sequential(*stem, *blocks, *ends)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    rng = stream(5, StreamPurpose.BATCH)
    for epoch, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        for inputs, targets in batches(images, labels, size, rng):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=not evonorm):
                logits = model(inputs.contiguous(memory_format=torch.channels_last))
                loss = functional.cross_entropy(logits.float(), targets)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = [
                (
                    model(normalised(tests[at : at + 500])).argmax(1).numpy()
                    == answers[at : at + 500]
                )
                for at in range(0, len(tests), 500)
            ]
        model.train()
        print(
            f"epoch {epoch + 1}, rate {rate:g}: {100 * np.concatenate(right).mean():.2f}",
            flush=True,
        )


def compressed_again(images_NHWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images after one more JPEG of quality 75, whose blocks are shifted by half of one."""
    result = np.empty_like(images_NHWC)
    for place, image in enumerate(images_NHWC):
        padded = np.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), mode="reflect")
        file = io.BytesIO()
        Image.fromarray(padded).save(file, "JPEG", quality=75, subsampling="4:2:0")
        result[place] = np.asarray(Image.open(file))[PADDING:-PADDING, PADDING:-PADDING]
    return result


def normalised(images_NHWC: NDArray[np.uint8]) -> Tensor:
    """Images as a model takes them, NCHW."""
    x = torch.from_numpy(images_NHWC).permute(0, 3, 1, 2).float() / 255
    return (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)


def batches(
    images_NHWC: NDArray[np.uint8],
    labels: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch, in random order, cropped and flipped at random."""
    width = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
    padded, side = np.pad(images_NHWC, width), images_NHWC.shape[1]
    order = rng.permutation(len(labels))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        cropped = np.empty((len(chosen), *images_NHWC.shape[1:]), np.uint8)
        corners, flips = rng.integers(0, 2 * PADDING + 1, (len(chosen), 2)), rng.random(len(chosen))
        for place, (index, (y, x), flip) in enumerate(zip(chosen, corners, flips, strict=True)):
            crop = padded[index, y : y + side, x : x + side]
            cropped[place] = crop[:, ::-1] if flip < 0.5 else crop
        yield normalised(cropped), torch.from_numpy(labels[chosen])


def main() -> None:
    """Do what is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("control", choices=["devices", "noise", "pooled", "plain"])
    parser.add_argument("folder", type=Path, help="of a run, or of CIFAR-10 in Parquet")
    parser.add_argument("--again", action="store_true", help="plain: images through JPEG again")
    parser.add_argument("--epochs", type=int, default=15, help="plain, with batch norms")
    parser.add_argument("--evonorm", action="store_true", help="plain: instead of batch norms")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.control == "plain":
        train_plain(
            arguments.folder,
            again=arguments.again,
            evonorm=arguments.evonorm,
            epochs=arguments.epochs,
        )
    elif arguments.control == "devices":
        show_devices(Run(arguments.folder))
    elif arguments.control == "noise":
        add_noise(Run(arguments.folder))
    else:
        train_pooled(Run(arguments.folder))


if __name__ == "__main__":
    main()
