"""Dense recursions of the methods for skewed data and of the baselines (reference.md, section 13).

Nothing of edgesim is used here. They are written from the reference's table and the sources that it
names, so that a test that compares the two compares two readings.

Symbols:
    X: (n, D), a row a device   W: doubly stochastic, W[i, j] for the edge j -> i
    G: gradients at X   gamma: learning rate   eta: averaging rate, which makes W lazier
    C: compressor, row by row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import networkx as nx
import numpy as np

Gradient = Callable[[np.ndarray], np.ndarray]
Rows = Callable[[np.ndarray], np.ndarray]


def metropolis_weights(n: int, rng: np.random.Generator, probability: float = 0.4) -> np.ndarray:
    """Symmetric W of a random connected graph: 1/(1 + larger degree) on each link."""
    A = rng.random((n, n)) < probability
    A = A | A.T
    order = rng.permutation(n)  # a path through all devices keeps the graph connected
    A[order[1:], order[:-1]] = A[order[:-1], order[1:]] = True
    np.fill_diagonal(A, val=False)
    degree = A.sum(0)
    W = np.where(A, 1 / (1 + np.maximum(degree[:, None], degree[None, :])), 0.0)
    return W + np.diag(1 - W.sum(0))


def doubly_stochastic(n: int, rng: np.random.Generator) -> np.ndarray:
    """A mean of random permutations and of the directed ring: not symmetric."""
    parts = [np.eye(n), np.roll(np.eye(n), 1, axis=0)]
    parts += [np.eye(n)[rng.permutation(n)] for _ in range(2)]
    return sum(parts) / len(parts)


def lazy(W: np.ndarray, eta: float) -> np.ndarray:
    return (1 - eta) * np.eye(len(W)) + eta * W


def d_psgd(X, W, rates, gradient: Gradient, *, steps_first: bool):
    """Adapt then combine, or combine then adapt."""
    for gamma in rates:
        G = gradient(X)
        X = W @ (X - gamma * G) if steps_first else W @ X - gamma * G
        yield X


def choco_iclr(X, W, rates, gradient: Gradient, eta, C: Rows):
    """[CH] convex_code/logistic.py: mix the old public copies, then compress (section 3.3)."""
    X_hat = np.zeros_like(X)
    for gamma in rates:
        X = X - gamma * gradient(X)
        X = X + eta * (W - np.eye(len(W))) @ X_hat
        X_hat = X_hat + np.stack([C(row) for row in X - X_hat])
        yield X


def d2(X, W, rates, gradient: Gradient):
    """[RELAY] `d2`, with C in units of gradients: at a new rate it is of the new rate."""
    C = np.zeros_like(X)
    for gamma in rates:
        G = gradient(X)
        before, X = X, W @ (X - gamma * (G - C))
        C = (X - before) / gamma + G
        yield X


def d2_as_published(X, W, rates, gradient: Gradient):
    """Tang et al. 2018, Algorithm 1, at a constant rate: X+ = W (2X - X- - gamma (G - G-))."""
    before, G_before = None, None
    for gamma in rates:
        G = gradient(X)
        if before is None:
            before, X = X, W @ (X - gamma * G)
        else:
            before, X = X, W @ (2 * X - before - gamma * (G - G_before))
        G_before = G
        yield X


def gradient_tracking(X, W, rates, gradient: Gradient):
    """[RELAY] `gradient_tracking`, with C in units of gradients."""
    C = np.zeros_like(X)
    for gamma in rates:
        G = gradient(X)
        X = W @ (X - gamma * (G - C))
        C = W @ (C - G) + G
        yield X


def tracking_as_published(X, W, rates, gradient: Gradient):
    """Gradient tracking with a tracker Y of gradients: X+ = W (X - gamma Y).

    Y starts at G; Y+ = W Y + G+ - G. Pu and Nedic 2021 mix the tracker so.
    """
    G = gradient(X)
    Y = G
    for gamma in rates:
        X = W @ (X - gamma * Y)
        G, G_before = gradient(X), G
        Y = W @ Y + G - G_before
        yield X


def beer(X, W, rates, gradient: Gradient, eta, C: Rows):
    """Zhao et al. 2022, Algorithm 1, with V of gradients; X_hat starts at 0, V_hat at C(V).

    C commutes with a change of units, as top-k does.
    """
    L = W - np.eye(len(W))
    X_hat = np.zeros_like(X)
    V = G = gradient(X)
    V_hat = np.stack([C(row) for row in V])
    for gamma in rates:
        X = X + eta * L @ X_hat - gamma * V
        X_hat = X_hat + np.stack([C(row) for row in X - X_hat])
        G, G_before = gradient(X), G
        V = V + eta * L @ V_hat + G - G_before
        V_hat = V_hat + np.stack([C(row) for row in V - V_hat])
        yield X


def momentum_tracking(X, W, rates, gradient: Gradient, beta):
    """[MT] `MTOptimizer`; momentum and correction start at zero."""
    M, C = np.zeros_like(X), np.zeros_like(X)
    for gamma in rates:
        M = beta * M + gradient(X)
        X = W @ X - gamma * (M - C)
        C = W @ (C - M) + M
        yield X


def gut(X, W, rates, gradient: Gradient, mu, beta=0.0):
    """[GUT] `GUT.__call__` and `transfer_params`: shifted sums of the neighbours' changes.

    Their trainer mixes models before the forward pass and takes them back after the backward pass
    (`gossip_averaging`, `remove_gossip`), so gradients are those at W X. Yields X, which is sent.
    delta = g - global_update / gamma
    acc = sum_j w_ij (x_j - x_j before) + b global_update before
    y = delta - mu acc / gamma before - mu delta before. With quasi-global momentum of section 3.5
    on y: b = 1 + beta. At a new rate all changes are of the new rate.
    """
    n = len(X)
    m = np.zeros_like(X)
    X_before, delta, shift, gamma_before = X, np.zeros_like(X), np.zeros_like(X), None
    for gamma in rates:
        acc = W @ (X - X_before) + (1 + beta) * shift
        global_update = (W - np.eye(n)) @ X
        g = gradient(X + global_update)
        delta_before, delta = delta, g - global_update / gamma
        if gamma_before is not None:
            # global_update of the round before belongs to delta before, in its own units.
            tracked = -mu * acc / gamma_before - mu * delta_before
        else:
            tracked = np.zeros_like(X)
        y = delta + tracked
        direction = beta * m + y
        X_before, X = X, X - gamma * direction
        m = beta * m + (1 - beta) * (X_before - X) / gamma
        shift, gamma_before = global_update, gamma
        yield X


def relay_sum(X, tree: nx.Graph, rates, gradient: Gradient):
    """[RELAY] `relaysum_model`: every device adds up what it holds of every other, however old.

    A message of i to j holds the newest x~ of i and of all devices behind i, as i knew them. So
    after round t device i knows x~ of device k of round t - (distance - 1), and x_0 before that.
    """
    n = len(X)
    x_0, half_steps = X[0].copy(), []
    distance = dict(nx.all_pairs_shortest_path_length(tree))
    for t, gamma in enumerate(rates):
        half_steps.append(X - gamma * gradient(X))
        X = np.stack(
            [
                sum(
                    half_steps[t - max(distance[i][k] - 1, 0)][k]
                    if t >= distance[i][k] - 1
                    else x_0
                    for k in range(n)
                )
                / n
                for i in range(n)
            ]
        )
        yield X


def local_sgd(X, rates, gradient: Gradient, every: int):
    """All average exactly after every `every` steps; yields after each average."""
    for step, gamma in enumerate(rates):
        X = X - gamma * gradient(X)
        if (step + 1) % every == 0:
            X = np.repeat(X.mean(0, keepdims=True), len(X), axis=0)
            yield X


def fed_avg(x, draws: Sequence[Sequence[int]], gradient: Gradient, gamma, every: int, samples):
    """McMahan et al. 2017: devices that were drawn train from x, which their mean replaces.

    Args:
        x: (D,) model of the server.
        draws: devices of each period.
        gradient: of all devices at (n, D).
        gamma: learning rate.
        every: local steps of a period.
        samples: of each device, which weigh its model.
    """
    n = len(samples)
    for drawn in draws:
        X = np.repeat(x[None], n, axis=0)
        for _ in range(every):
            X = X - gamma * gradient(X)
        weight = np.array([samples[i] for i in drawn], float)
        x = weight @ X[list(drawn)] / weight.sum()
        yield x
