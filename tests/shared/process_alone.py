"""A process that is a group of its own, and what it trains: for tests of edgesim.distributed."""

from __future__ import annotations

import torch
from torch import nn

ALONE = {"topology": {"kind": "ring"}, "gossip": {"algorithm": "gradient_push"}}


def parts(lr=0.1):
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def stepped(model, optimizer):
    """One step of a caller."""
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
