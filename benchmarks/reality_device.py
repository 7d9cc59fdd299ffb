"""One device of the real fleet of `reality.py`: a process that trains, and writes down its times.

    python reality_device.py FOLDER RANK

FOLDER has `fleet.json` and the scenario. The process leaves `times-RANK.txt`, a line each:

    r ROUND START STEP_END END STEP ALL    times of a round; its processor seconds: of forward and
                                           backward pass, and of all that the process did
    a SENDER TIME                          arrival of the next message of a neighbour

Times are seconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from threading import Thread
from time import monotonic, process_time
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from torch import distributed as dist

import edgesim
from edgesim.assembly.build import DataSpec, choose_compute, make_flat_model
from edgesim.assembly.known_data import data_shape
from edgesim.distributed import around
from edgesim.distributed.peers import Peers, Transfer
from edgesim.learning.allocator import keep_freed_memory
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario.files import load_scenario
from edgesim.scenario.schema import Scenario

BATCHES = 4  # of random images, which take turns
WARM_STEPS = 3  # before the process is confined: what is compiled and allocated once


class ArrivalWatch:
    """A transfer that notes when it was done, whether or not somebody waits for it by then."""

    def __init__(self, transfer: Transfer, sender: int, log: TextIO) -> None:
        self._transfer, self._sender, self._log = transfer, sender, log
        self._error: RuntimeError | None = None
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """As of a transfer."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        try:
            self._transfer.work.wait()
        except RuntimeError as error:  # which whoever waits raises again
            self._error = error
            return
        self._log.write(f"a {self._sender} {monotonic():.6f}\n")


class WatchedPeers(Peers):
    """Peers whose messages are noted when they arrive."""

    log: TextIO

    def _receive(self, sender: int, num_bytes: int) -> Transfer:
        transfer = super()._receive(sender, num_bytes)
        watch: Any = ArrivalWatch(transfer, sender, self.log)
        return Transfer(watch, transfer.tensor)


def make_module(scenario: Scenario) -> nn.Module:
    """The model as a device of the emulator has it, with tensors of its own."""
    shape = data_shape(scenario.data)
    channels = shape.image_shape[0]
    data = DataSpec(shape.image_shape, shape.num_classes, (0.0,) * channels, (1.0,) * channels)
    module = make_flat_model(scenario, data, choose_compute(scenario, 0)).model
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()
        parameter.grad = None
    return module.train()


def make_batches(scenario: Scenario, rank: int) -> list[tuple[Tensor, Tensor]]:
    """Random images and labels."""
    shape, generator = data_shape(scenario.data), torch.Generator().manual_seed(rank)
    size = scenario.data.batch_size
    return [
        (
            torch.randn(size, *shape.image_shape, generator=generator),
            torch.randint(0, shape.num_classes, (size,), generator=generator),
        )
        for _ in range(BATCHES)
    ]


class Training:
    """A plain loop of torch."""

    def __init__(self, scenario: Scenario, rank: int) -> None:
        self.module = make_module(scenario)
        self.leaves = nn.ModuleList(m for m in self.module.modules() if not any(m.children()))
        section = scenario.training.optimizer
        self.optimizer = torch.optim.SGD(
            [p for p in self.module.parameters() if p.requires_grad],
            lr=section.lr,
            momentum=0.9,
            nesterov=True,
            weight_decay=1e-4,
            fused=True,  # one pass, as over the flat vectors that the clock counts
        )
        self._batches = make_batches(scenario, rank)
        self._num_steps = 0

    def compute_gradient(self) -> None:
        """Forward and backward pass of the next batch."""
        images, labels = self._batches[self._num_steps % BATCHES]
        seed_dropout_(self.leaves, self._num_steps)
        seed_rounding_(self.leaves, self._num_steps)
        self._num_steps += 1
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.module(images), labels).backward()


def confine(fleet: dict[str, Any], rank: int) -> None:
    """Hold this process to its share of its core from now on."""
    os.sched_setaffinity(0, {fleet["cores"][rank]})
    Path(fleet["entrances"][rank]).write_text(str(os.getpid()))


def main() -> None:
    """Train until the fleet is ended."""
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    fleet = json.loads((folder / "fleet.json").read_text())
    torch.set_num_threads(1)
    keep_freed_memory()  # as runs do
    scenario = load_scenario(folder / "scenario.yaml")
    training = Training(scenario, rank)
    for _ in range(WARM_STEPS):
        training.compute_gradient()
    with (folder / f"times-{rank}.txt").open("w", buffering=1) as log:
        WatchedPeers.log = log
        around.Peers = WatchedPeers  # type: ignore[attr-defined]
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{fleet['master']}:29500",
            rank=rank,
            world_size=len(fleet["cores"]),
            timeout=timedelta(seconds=120),
        )
        edgesim.gossip_around(training.module, training.optimizer, folder / "scenario.yaml")
        dist.barrier()
        confine(fleet, rank)
        r = 0
        while True:
            start_s, before_s = monotonic(), process_time()
            training.compute_gradient()
            step_end_s, step_s = monotonic(), process_time() - before_s
            training.optimizer.step()
            end_s, all_s = monotonic(), process_time() - before_s
            walls = f"{start_s:.6f} {step_end_s:.6f} {end_s:.6f}"
            log.write(f"r {r} {walls} {step_s:.6f} {all_s:.6f}\n")
            r += 1


if __name__ == "__main__":
    main()
