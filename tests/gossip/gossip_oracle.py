"""Dense-matrix NumPy recursions of the gossip algorithms, written from reference.md, sections 3 and
7 alone.

Nothing of edgesim is used here, so that a test that compares the two compares two readings.

Symbols:
    X: (n, D), a row a device   u: (n,)   W[i, j]: weight of the edge j -> i, columns sum to one
    H[i, j]: (D,) public copy of the edge j -> i   C: compressor, row by row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Compress = Callable[[np.ndarray], np.ndarray]
Gradient = Callable[[np.ndarray], np.ndarray]


def random_weights(n: int, rng: np.random.Generator, probability: float = 0.4) -> np.ndarray:
    """Column-stochastic W of a random digraph, 1/(out-degree + 1); devices may be silent."""
    adjacency = (rng.random((n, n)) < probability) | np.eye(n, dtype=bool)
    return adjacency / adjacency.sum(axis=0)


def off_diagonal(W: np.ndarray) -> np.ndarray:
    return W - np.diag(np.diag(W))


def top_k(sizes: Sequence[int], keep: float) -> Compress:
    """Per tensor, the max(1, int(n (1 - r))) entries of largest magnitude, r = 1 - keep.

    Source: reference.md, section 3.6.
    """

    def compress(v: np.ndarray) -> np.ndarray:
        parts = []
        for part in np.split(v, np.cumsum(sizes)[:-1]):
            k = max(1, int(part.size * (1 - (1 - keep))))
            kept = np.argsort(-np.abs(part), kind="stable")[:k]
            dense = np.zeros_like(part)
            dense[kept] = part[kept]
            parts.append(dense)
        return np.concatenate(parts)

    return compress


def identity(v: np.ndarray) -> np.ndarray:
    return v.copy()


def choco(X, u, Ws, gradient: Gradient, gamma, eta, C: Compress):
    """The edge form of docs/gossip.md; yields (X, u, H) after each round."""
    n, D = X.shape
    H = np.zeros((n, n, D))
    for W in Ws:
        X = X - gamma * gradient(X / u[:, None])
        off = off_diagonal(W)
        for i, j in zip(*np.nonzero(off), strict=True):
            H[i, j] = H[i, j] + C(X[j] - H[i, j])
        sent, received = np.einsum("ij,ijd->jd", off, H), np.einsum("ij,ijd->id", off, H)
        X = X + eta * (received - sent)
        u = u + eta * (W - np.eye(n)) @ u
        yield X, u, H


def choco_fixed(X, u, W, rounds, gradient: Gradient, gamma, eta, C: Compress):
    """reference.md, section 3.3 with one public copy a device: x = x~ + eta sum_j (W - I)_ij
    x^_j."""
    n = len(X)
    X_hat = np.zeros_like(X)
    for _ in range(rounds):
        X = X - gamma * gradient(X / u[:, None])
        X_hat = X_hat + np.stack([C(row) for row in X - X_hat])
        X = X + eta * (W - np.eye(n)) @ X_hat
        u = u + eta * (W - np.eye(n)) @ u
        yield X, u, X_hat


def choco_as_printed(X, u, W, rounds, gradient: Gradient, gamma, eta, C: Compress):
    """The paper's Algorithm 5, step 9: (W - I)_ij (x^_j - x^_i), which loses mass.

    Source: reference.md, section 9.3.
    """
    n = len(X)
    X_hat = np.zeros_like(X)
    L = W - np.eye(n)
    for _ in range(rounds):
        X = X - gamma * gradient(X / u[:, None])
        X_hat = X_hat + np.stack([C(row) for row in X - X_hat])
        X = X + eta * (L @ X_hat - L.sum(axis=1, keepdims=True) * X_hat)
        u = u + eta * L @ u
        yield X, u, X_hat


def deep_squeeze(X, u, Ws, gradient: Gradient, gamma, eta, C: Compress):
    """reference.md, section 3.4; a device with no active out-edge compresses nothing."""
    n = len(X)
    delta = np.zeros_like(X)
    for W in Ws:
        X = X - gamma * gradient(X / u[:, None])
        speaks = (off_diagonal(W).sum(axis=0) > 0)[:, None]
        V = X + delta
        c = np.where(speaks, np.stack([C(row) for row in V]), 0.0)
        delta = np.where(speaks, V - c, delta)
        X = X + eta * (W - np.eye(n)) @ c
        u = u + eta * (W - np.eye(n)) @ u
        yield X, u, delta


def gradient_push(X, u, Ws, gradient: Gradient, gamma, eta):
    """SGP: the half step is mixed whole."""
    n = len(X)
    for W in Ws:
        X = X - gamma * gradient(X / u[:, None])
        X = X + eta * (W - np.eye(n)) @ X
        u = u + eta * (W - np.eye(n)) @ u
        yield X, u


def dcd(X, W, rounds, gradient: Gradient, gamma, C: Compress):
    """reference.md, section 7: the weights are the public copies."""
    X_hat = X.copy()
    for _ in range(rounds):
        X = X - gamma * gradient(X)
        T = X - X_hat + (W - np.eye(len(X))) @ X_hat
        X_hat = X_hat + np.stack([C(row) for row in T])
        X = X_hat.copy()
        yield X
