"""CHOCO-SGD of the paper in plain torch: several fleets as groups of one model, on a GPU.

    python benchmarks/plain_choco.py CIFAR --out FILE.json
    python benchmarks/plain_choco.py CIFAR --out FILE.json --epochs 20 --norm range --fleets 0/0

It imports nothing of edgesim: what both find is the fault of neither. CIFAR holds Parquet files of
images in any format. A fleet is eight devices on a directed ring, named by the percentage that its
messages leave out and by its skew, as in Table 2a of arXiv 2111.09389. `one-node` is averaged
exactly after each step and dealt all samples anew in each epoch: SGD in one place, batches of 256.

Formulas: docs/reference.md, sections 2 (norms), 3.3 and 3.5 (CHOCO, momentum), 4 (skew), 5
(settings). Unlike edgesim it has TF32 in the convolutions, and other random numbers.

Symbols:
    F: fleets   n: devices of one   R = F n: groups of the model   B: samples of a device's batch
    P: parameters of a device   H, W: height, width
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from cifar_files import MEAN, PADDING, STD, read
from numpy.typing import NDArray
from plain_resnets import CLASSES, NORMS, Models
from torch import Tensor
from torch.nn import functional

DEVICES, BATCH, SIDE = 8, 32, 32
RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4
GOSSIP_ROUNDS = 50  # before the evaluation "as the authors"
EVALUATED_AT_ONCE = 4000  # images times models


@dataclass(frozen=True)
class Fleet:
    """A cell of Table 2a in fp32."""

    left_out: float
    skew: float
    averaging_rate: float
    paper: float  # test accuracy in percent
    is_ring: bool = True


FLEETS = {
    "one-node": Fleet(0.0, 0.0, 1.0, 91.25, is_ring=False),
    "0/0": Fleet(0.0, 0.0, 1.0, 90.96),
    "0/0.8": Fleet(0.0, 0.8, 1.0, 87.87),
    "99/0": Fleet(0.99, 0.0, 0.01, 89.21),
    "99/0.8": Fleet(0.99, 0.8, 0.01, 85.78),
}


class Gossip:
    """CHOCO of all fleets: matrices (R, P) in and out."""

    def __init__(self, models: Models, fleets: list[Fleet], device: torch.device) -> None:
        self.models = models
        eye = torch.eye(DEVICES)
        ring, complete = (eye + eye.roll(1, 0)) / 2, torch.full_like(eye, 1 / DEVICES)
        mixing = [ring if fleet.is_ring else complete for fleet in fleets]
        steps = [f.averaging_rate * (w - eye) for f, w in zip(fleets, mixing, strict=True)]
        self.steps = torch.stack(steps).to(device)  # rate (W - I), (F, n, n)
        self.left_out = [fleet.left_out for fleet in fleets]

    def exchange(self, x: Tensor, known: Tensor) -> Tensor:
        """The models after a round; `known`, the x_hat of neighbours, changes in place."""
        q = x - known
        for number, left_out in enumerate(self.left_out):
            if left_out:
                keep_largest_(q[number * DEVICES : (number + 1) * DEVICES], self.models, left_out)
        known.add_(q)
        by_fleet = known.view(-1, DEVICES, known.shape[1])
        return x + torch.bmm(self.steps, by_fleet).view(x.shape)


def keep_largest_(q: Tensor, models: Models, left_out: float) -> None:
    """Top-k of each tensor of each device, at least one entry; the others become 0."""
    for first, count, entries in models.blocks:
        block = q[:, first : first + count * entries].view(-1, count, entries)
        k = max(1, int(entries * (1 - left_out)))
        chosen = block.abs().topk(k, sorted=False).indices
        kept = block.gather(2, chosen)
        block.zero_()
        block.scatter_(2, chosen, kept)


def shards(labels: NDArray[np.int64], skew: float, seed: int) -> list[NDArray[np.int64]]:
    """Samples of each device: int(skew c) of each class in order, the rest shuffled."""
    order = np.argsort(labels, kind="stable")
    by_class = [order[labels[order] == number] for number in range(CLASSES)]
    in_order = np.concatenate([own[: int(skew * len(own))] for own in by_class])
    rest = np.concatenate([own[int(skew * len(own)) :] for own in by_class]).tolist()
    random.Random(seed).shuffle(rest)  # noqa: S311  # reference.md, section 4 names this generator
    share = len(labels) / DEVICES
    many, few = int(share * skew), int(share * (1 - skew))
    return [
        np.concatenate((in_order[d * many : (d + 1) * many], rest[d * few : (d + 1) * few])).astype(
            np.int64
        )
        for d in range(DEVICES)
    ]


class Samples:
    """The training images on the device, and the order in which they are taken in an epoch."""

    def __init__(self, folder: Path, fleets: list[Fleet], seed: int, device: torch.device) -> None:
        images, labels = read(folder / "train.parquet")
        width = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
        padded_NCHW = np.ascontiguousarray(np.pad(images, width).transpose(0, 3, 1, 2))
        self.pixels = torch.from_numpy(padded_NCHW).to(device).flatten()
        self.labels = torch.from_numpy(labels).to(device)
        self.fleets, self.rng = fleets, np.random.default_rng(seed)
        self.shards = [shards(labels, fleet.skew, seed) for fleet in fleets]
        self.rounds = -(-len(labels) // DEVICES // BATCH)
        shape = (len(fleets) * DEVICES, self.rounds, BATCH)
        self.order = torch.zeros(shape, dtype=torch.int64, device=device)
        self.weight = torch.zeros(shape, device=device)  # 0 where the last batch of an epoch ends
        self.round = torch.zeros(1, dtype=torch.int64, device=device)

    def shuffle(self) -> None:
        """Begin an epoch."""
        order = np.zeros((len(self.order), self.rounds * BATCH), np.int64)
        weight = np.zeros(order.shape, np.float32)
        for number, (fleet, own) in enumerate(zip(self.fleets, self.shards, strict=True)):
            everything = self.rng.permutation(np.concatenate(own))
            dealt = own if fleet.is_ring else np.array_split(everything, DEVICES)
            for device, shard in enumerate(dealt):
                row = number * DEVICES + device
                order[row, : len(shard)] = self.rng.permutation(shard)
                weight[row, : len(shard)] = 1
        self.order.copy_(torch.from_numpy(order).view(self.order.shape))
        self.weight.copy_(torch.from_numpy(weight).view(self.order.shape))
        self.round.zero_()

    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Images (B, R, 3, H, W), labels and weights (B, R) of the next round."""
        chosen = self.order.index_select(1, self.round)[:, 0].T  # B, R
        weight = self.weight.index_select(1, self.round)[:, 0].T
        self.round.add_(1)
        device, side = chosen.device, SIDE + 2 * PADDING
        top, left = torch.randint(0, 2 * PADDING + 1, (2, *chosen.shape), device=device)
        is_flipped = torch.rand(chosen.shape, device=device) < 0.5
        across = torch.arange(SIDE, device=device)
        columns = torch.where(is_flipped[..., None], SIDE - 1 - across, across) + left[..., None]
        rows = (across + top[..., None]) * side
        channels = (chosen[..., None] * 3 + torch.arange(3, device=device)) * side * side
        at = channels[..., None, None] + rows[:, :, None, :, None] + columns[:, :, None, None]
        return normalised(self.pixels[at]), self.labels[chosen], weight


def normalised(images: Tensor) -> Tensor:
    """Bytes of shape (..., 3, H, W) as a model takes them."""
    mean, std = (constant(each, images.device) for each in (MEAN, STD))
    return (images.float() / 255 - mean) / std


@cache
def constant(by_channel: tuple[float, ...], device: torch.device) -> Tensor:
    """Shape (C, 1, 1); a graph can't take it from the processor's memory."""
    return torch.tensor(by_channel, device=device).view(-1, 1, 1)


class Training:
    """State and one round of all fleets."""

    def __init__(
        self, models: Models, fleets: list[Fleet], samples: Samples, start: Tensor
    ) -> None:
        self.models, self.samples, self.start = models, samples, start
        self.gossip = Gossip(models, fleets, start.device)
        self.x = start.repeat(len(fleets) * DEVICES, 1)
        self.known, self.momentum = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.rate = torch.zeros((), device=start.device)
        self.losses = torch.zeros(len(self.x), device=start.device)

    def restart(self) -> None:
        """Back to the initial values."""
        self.x.copy_(self.start.expand_as(self.x))
        self.known.zero_()
        self.momentum.zero_()

    def round(self) -> None:
        """A step of each device, and an exchange."""
        images, labels, weight = self.samples.batch()
        leaves = {
            name: view.detach().requires_grad_() for name, view in self.models.views(self.x).items()
        }
        logits = self.models.logits(leaves, images)
        each = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="none"
        ).view(weight.shape)
        losses = (each * weight).sum(0) / weight.sum(0)
        self.losses.copy_(losses.detach())
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()))
        flat = torch.cat([gradient.flatten(1) for gradient in gradients], 1)
        flat.add_(self.x, alpha=WEIGHT_DECAY)
        self.momentum.mul_(MOMENTUM).add_(flat)
        flat.add_(self.momentum, alpha=MOMENTUM)
        self.x.copy_(self.gossip.exchange(self.x - self.rate * flat, self.known))

    def exchange_alone(self) -> Tensor:
        """The models after rounds of gossip without training; nothing of the state changes."""
        x, known = self.x.clone(), self.known.clone()
        for _ in range(GOSSIP_ROUNDS):
            x = self.gossip.exchange(x, known)
        return x


def recorded(training: Training) -> Callable[[], object]:
    """A round, on a GPU as one graph; the state is the initial one again."""
    if training.x.device.type != "cuda":
        return training.round
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    training.samples.shuffle()
    with torch.cuda.stream(beside):
        for _ in range(5):  # compilers and the choice of algorithms
            training.round()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        training.round()
    training.restart()
    return graph.replay


def accuracies(models: Models, x: Tensor, images: Tensor, labels: Tensor) -> list[float]:
    """In percent, of each model of a matrix (R, P)."""
    R = len(x)
    views, right = models.views(x), torch.zeros(R, device=x.device)
    with torch.no_grad():
        for part, answers in zip(
            images.split(EVALUATED_AT_ONCE // R), labels.split(EVALUATED_AT_ONCE // R), strict=True
        ):
            inputs = normalised(part)[:, None].expand(-1, R, -1, -1, -1)
            right += (models.logits(views, inputs).argmax(2) == answers[:, None]).sum(0)
    return [round(100 * float(share), 2) for share in right / len(labels)]


def rate_of(epoch: int, epochs: int) -> float:
    """Learning rate: a tenth in the first epoch, and after a half and three quarters."""
    if epoch == 0:
        return RATE / 10
    return RATE * 0.1 ** sum(epoch >= milestone for milestone in (epochs / 2, epochs * 3 / 4))


def train(arguments: argparse.Namespace) -> None:
    """Train all fleets at once; the file has what is known so far."""
    device = torch.device(arguments.device)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(arguments.seed)
    fleets = [FLEETS[name] for name in arguments.fleets]
    norm = NORMS[arguments.norm]
    models = Models(norm)
    start = models.initial(torch.Generator().manual_seed(arguments.seed)).to(device)
    samples = Samples(arguments.folder, fleets, arguments.seed, device)
    images, labels = read(arguments.folder / "test.parquet")
    tests = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).to(device)
    answers = torch.from_numpy(labels).to(device)
    training = Training(models, fleets, samples, start)
    if device.type == "cuda":
        models.norm = torch.compile(norm, dynamic=False)
    step = recorded(training)
    models.norm = norm
    runs = [
        Record(name, arguments.seed, arguments.norm, arguments.epochs) for name in arguments.fleets
    ]
    begin = time.perf_counter()
    for epoch in range(arguments.epochs):
        samples.shuffle()
        training.rate.fill_(rate_of(epoch, arguments.epochs))
        for _ in range(samples.rounds):
            step()
        if (epoch + 1) % max(1, arguments.epochs // 20) == 0:
            losses = training.losses.view(len(fleets), DEVICES).mean(1).tolist()
            seconds = time.perf_counter() - begin  # the processor has waited for the losses
            by_fleet = training.x.view(len(fleets), DEVICES, -1)
            averages = accuracies(models, by_fleet.mean(1), tests, answers)
            distances = (by_fleet - by_fleet.mean(1, keepdim=True)).square().sum(2).mean(1).sqrt()
            for run, *values in zip(runs, averages, losses, distances.tolist(), strict=True):
                run.add(epoch + 1, *values)
            print(f"epoch {epoch + 1}, {seconds:.1f} s: {averages}", flush=True)
            write(arguments.out, runs, device)
    alone = accuracies(models, training.x, tests, answers)
    mixed = accuracies(models, training.exchange_alone(), tests, answers)
    for number, run in enumerate(runs):
        own = slice(number * DEVICES, (number + 1) * DEVICES)
        run.devices, run.as_the_authors = alone[own], mixed[own]
        print(
            f"{run.fleet}: as the authors {np.mean(mixed[own]):.2f}, "
            f"paper {FLEETS[run.fleet].paper}"
        )
    write(arguments.out, runs, device)


@dataclass
class Record:
    """What is known of a fleet's training; accuracies in percent."""

    fleet: str
    seed: int
    norm: str
    epochs: int

    def __post_init__(self) -> None:
        self.evaluations: list[dict[str, float]] = []
        self.devices: list[float] = []
        self.as_the_authors: list[float] = []

    def add(self, epoch: int, averaged: float, loss: float, distance: float) -> None:
        """An evaluation of the averaged model; loss of the last batch; consensus distance."""
        self.evaluations.append(
            {
                "epoch": epoch,
                "averaged": averaged,
                "loss": round(loss, 4),
                "consensus_distance": round(distance, 4),
            }
        )


def write(file: Path, runs: list[Record], device: torch.device) -> None:
    """All that is known, as JSON."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    content = {"processor": name, "torch": torch.__version__, "runs": [vars(run) for run in runs]}
    file.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="CIFAR-10 in Parquet")
    parser.add_argument("--out", type=Path, required=True, help="file of the results, JSON")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--norm", choices=NORMS, default="evonorm")
    parser.add_argument("--fleets", choices=FLEETS, nargs="+", default=list(FLEETS)[:2])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
