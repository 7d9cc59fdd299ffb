"""Four processes train a network of their own by gossip; each has three or four digits.

torchrun --nproc-per-node 4 examples/outside.py     # or: python examples/outside.py
"""

import copy
import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch import multiprocessing, nn

import edgesim

GOSSIP = {
    "topology": {"kind": "ring"},
    "gossip": {
        "algorithm": "choco",
        "averaging_rate": 0.3,
        "compressor": {"kind": "top_k", "keep": 0.1},
    },
}


def train(steps=100):
    rank, size = dist.get_rank(), dist.get_world_size()
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    test, rest = slice(0, 400), torch.arange(400, len(labels))
    own = rest[labels[rest].sort(stable=True).indices].chunk(size)[rank]  # some digits alone

    torch.manual_seed(1)  # the same model in every process
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gossip = edgesim.gossip_around(model, optimizer, GOSSIP)

    order = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        batch = own[torch.randint(len(own), (32,), generator=order)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()  # and an exchange with both neighbours

    averaged = copy.deepcopy(model)  # the model itself could be trained on
    averaged.load_state_dict(gossip.average())
    averaged.eval()
    accuracy = (averaged(images[test]).argmax(1) == labels[test]).float().mean()
    print(
        f"process {rank}: trained on digits {sorted(set(labels[own].tolist()))}, "
        f"sent {gossip.sent.total:,} bytes; accuracy of the averaged model {accuracy:.1%}",
        flush=True,
    )


def join(rank, folder, size):
    """A process without torchrun: the processes find each other by a file."""
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=size)
    train()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # of torchrun
        dist.init_process_group("gloo")
        train()
        dist.destroy_process_group()
    else:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.start_processes(join, args=(folder, 4), nprocs=4, start_method="fork")
