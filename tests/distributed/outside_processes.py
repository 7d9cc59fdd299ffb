"""Four processes of torch.distributed that train as a caller would: a program of its own.

    python outside_processes.py FOLDER

FOLDER has a file `cases.pt`: for each case the scenario, the initial module, each rank's batches,
and how the caller's optimizer is made. The program leaves `rank-R.pt` with what each process had at
the end of each case. Its processes are forks, so torch is imported once.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed as dist
from torch import multiprocessing as mp
from torch import nn

import edgesim
from edgesim.compression.compressors import Identity
from edgesim.compression.wire import Message, encode
from edgesim.distributed.peers import Peers
from edgesim.learning.parameters import ParameterLayout

NUM_PROCESSES = 4
LAYOUT = ParameterLayout.from_shapes([(500,)])


class Training:
    """The loop of a caller: one module, one optimizer of torch, gossip around them."""

    def __init__(self, case, rank, **changes):
        self.batches = case["batches"][rank]
        self.rates = case["rates"]
        self.uses_closure = case.get("uses_closure", False)
        self.model = copy.deepcopy(case["model"])
        trained = [p for p in self.model.parameters() if p.requires_grad]
        kind = getattr(torch.optim, case["optimizer"])
        self.optimizer = kind(trained, **case["options"])
        options = {"num_samples": case["num_samples"][rank], **changes}
        self.gossip = edgesim.gossip_around(self.model, self.optimizer, case["scenario"], **options)

    def train(self, start, end):
        self.model.train()
        for number in range(start, end):
            images, labels = self.batches[number]
            for group in self.optimizer.param_groups:
                group["lr"] = self.rates[number]

            def closure(images=images, labels=labels):
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(images), labels)
                loss.backward()
                return loss

            if self.uses_closure:
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()

    def outcome(self):
        gossip, sent = self.gossip, self.gossip.sent
        flat = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])
        x = gossip.state_dict()["vectors"]["gossip/x"]
        return {
            "z": flat.clone(),
            "x": x,
            "u": gossip.push_weight,
            "sent": [sent.values, sent.indices, sent.scales, sent.header],
            "received": gossip.received_bytes,
            "rounds": gossip.rounds,
            "steps": gossip.steps,
            "average": gossip.average(),
        }


def resumed(case, rank, path):
    """What a training leaves that was interrupted in the middle, and its new process."""
    middle, end = len(case["batches"][rank]) // 2, len(case["batches"][rank])
    first = Training(case, rank)
    first.train(0, middle)
    state = {name: getattr(first, name).state_dict() for name in ("model", "optimizer", "gossip")}
    torch.save(state, path)
    second = Training(case, rank)
    for name, part in torch.load(path, weights_only=True).items():
        getattr(second, name).load_state_dict(part)
    second.train(middle, end)
    return second.outcome()


def refused(act):
    try:
        act()
    except edgesim.EdgesimError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refusals(cases, rank, folder):
    """Messages of what goes wrong in a process, or between them."""
    case = cases["choco"]
    said = {}

    def other_parameters():
        changed = copy.deepcopy(case)
        if rank == 2:
            with torch.no_grad():
                next(changed["model"].parameters()).add_(1e-6)
        Training(changed, rank)

    said["other parameters"] = refused(other_parameters)
    rate = 0.3 if rank == 3 else 0.2
    said["other rate"] = refused(lambda: Training(case, rank, gossip__averaging_rate=rate))
    said["other learning rate"] = refused(lambda: followed_by_other_rates(cases, rank))
    said["one cannot begin"] = refused(lambda: Training(case, rank, num_samples=2 - rank))
    said["other state"] = refused(
        lambda: Training(case, rank, seed=5).gossip.load_state_dict(
            torch.load(folder / f"choco-{rank}.pt")["gossip"]
        )
    )
    other = torch.load(folder / f"choco-{(rank + 1) % NUM_PROCESSES}.pt")["gossip"]
    said["other rank"] = refused(lambda: Training(case, rank).gossip.load_state_dict(other))

    def changed_parameters():
        training = Training(case, rank)
        training.train(0, 1)
        with torch.no_grad():
            next(training.model.parameters()).mul_(0.5)
        training.train(1, 2)

    said["changed parameters"] = refused(changed_parameters)
    pair = dist.new_group([0, 1])
    said["in a pair"] = refused(lambda: Training(case, rank, group=pair))
    return said


def followed_by_other_rates(cases, rank):
    """Processes whose learning rates differ, with an algorithm that needs one."""
    case = copy.copy(cases["momentum tracking"])
    case["options"] = case["options"] | {"lr": 0.1 if rank == 1 else 0.2}
    Training(case, rank)


def lost(case, rank):
    """The last process ends; what those say that wait for it, or for one that waited."""
    training = Training(case, rank)
    training.train(0, 1)
    if rank == NUM_PROCESSES - 1:
        return "", ""
    said = refused(lambda: training.train(1, 4))
    return said, refused(training.gossip.state_dict)


def ahead(rank, folder):
    """What processes 0 and 1 get of each other; the second message of 0 waits for nobody.

    Process 1 asks for it after process 0 has gone on, which it says with a file.
    """
    peers = Peers(dist.group.WORLD)
    peers.start(b"")
    if rank > 1:
        return []
    payload = Identity("fp32").compress(torch.ones(500), LAYOUT, np.random.default_rng(0))
    data = encode(Message("choco", rank, 1 - rank, 0, 0, 0.5, 1.0, payload))
    went_on, other, longest = folder / "went-on", 1 - rank, {"longest_bytes": len(data) + 100}
    got = peers.exchange({other: data}, [other], 0, **longest, next_senders=[other])
    if rank == 0:
        peers.exchange({1: data}, [], 1, **longest)
        went_on.touch()
        return [*got, refused(lambda: peers.exchange({1: data}, [], 2, longest_bytes=100))]
    end_s = time.monotonic() + 60
    while not went_on.exists():
        assert time.monotonic() < end_s, "process 0 waits for process 1"
        time.sleep(0.02)
    return [*got, *peers.exchange({}, [0], 1, **longest)]


def work(rank, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), NUM_PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=NUM_PROCESSES)
    cases = torch.load(folder / "cases.pt", weights_only=False)
    outcomes = {}
    for name, case in cases.items():
        training = Training(case, rank)
        training.train(0, len(case["batches"][rank]))
        outcomes[name] = training.outcome()
        if case.get("is_resumed"):
            outcomes[f"{name} resumed"] = resumed(case, rank, folder / f"{name}-{rank}.pt")
    torch.save(ahead(rank, folder), folder / f"ahead-{rank}.pt")
    said = refusals(cases, rank, folder) | {"lost": lost(cases["choco"], rank)}
    torch.save({"outcomes": outcomes, "said": said}, folder / f"rank-{rank}.pt")
    os._exit(0)  # the others notice; the group can't be closed in order once one is lost


if __name__ == "__main__":
    # What gossip and the first step of an optimizer import: once, before the processes part.
    import torch._dynamo

    import edgesim.distributed.around

    mp.start_processes(work, args=(Path(sys.argv[1]),), nprocs=NUM_PROCESSES, start_method="fork")
