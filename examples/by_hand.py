"""An algorithm of one's own by hand, without devices and data, beside its formula in matrices.

    python examples/by_hand.py

Change `EcqGossip` and `formula` to yours. The calls are those of a run, in its order.

Symbols:
    X: models, a row for each device   S: steps, likewise   eta: averaging rate
    W: mixing matrix; W[j, i] is the share of device i's mass that goes to device j
"""

import numpy as np
import torch
from ecq_gossip import EcqGossip

from edgesim.compression.compressors import Identity
from edgesim.gossip.algorithm import OutEdge, Share
from edgesim.learning.parameters import ParameterLayout

RATE = 0.1  # learning rate of the steps, for algorithms that ask for it


def gossip(algorithm, X, W, steps):
    """Models after one round for each S of `steps`."""
    devices = range(len(W))
    states = []
    for i in devices:
        in_weights = {j: W[i, j] for j in devices if j != i and W[i, j] > 0}
        states.append(algorithm.init(torch.tensor(X[i], dtype=torch.float32), in_weights))
    rng = np.random.default_rng(0)
    for S in steps:
        arrived = [[] for _ in devices]
        for i, state in enumerate(states):
            state.x += torch.tensor(S[i], dtype=torch.float32)
            state.take_rate_(RATE)
            out_edges = [OutEdge(j, W[j, i]) for j in devices if j != i and W[j, i] > 0]
            for share in algorithm.send_(state, out_edges, rng):
                received = Share(i, share.weight, share.push_weight, share.payload)
                arrived[share.peer].append(received)
        for state, received in zip(states, arrived, strict=True):
            algorithm.absorb_(state, received)
    return np.array([(state.x / state.u).numpy() for state in states])


def formula(X, W, steps, eta):
    """The same in float64. Without compression error feedback does nothing: it is plain gossip."""
    for S in steps:
        X = X + S
        X = X + eta * (W - np.eye(len(W))) @ X
    return X


def main():
    """Print how far the two are apart, on a ring of five devices after 20 rounds."""
    n, shapes, eta = 5, [(3, 4), (4,)], 0.7
    layout = ParameterLayout.from_shapes(shapes)
    algorithm = EcqGossip(compressor=Identity("fp32"), layout=layout, averaging_rate=eta, fade=0.9)
    W = sum(np.roll(np.eye(n), shift, axis=0) for shift in (-1, 0, 1)) / 3
    rng = np.random.default_rng(1)
    steps = rng.normal(size=(20, n, layout.numel))  # unlike data: unlike steps
    X = np.tile(rng.normal(size=layout.numel), (n, 1))  # devices begin with equal models
    apart = np.abs(gossip(algorithm, X, W, steps) - formula(X, W, steps, eta)).max()
    print(f"largest difference: {apart:.1e}")
    return apart


if __name__ == "__main__":
    main()
