"""Algorithms and compressors of one's own are tried before a run: they exchange some messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.own_calls import called, check_hash, check_kept, expect, new_rng, shown
from edgesim.compression.compressors import Compressor
from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Message, decode_one_of, encode
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import (
    Algorithm,
    Buffers,
    GossipState,
    OutEdge,
    Place,
    Share,
    WrongSharesError,
    check_shares,
)
from edgesim.gossip.optional_members import message_layouts, starting_state
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout
from topologies import Schedule, first_exchange

ALGORITHM, COMPRESSOR = "gossip.algorithm", "gossip.compressor.kind"
MOST_NEIGHBORS = 2  # of a device that is tried
MASS_ERROR = 1e-4  # relative; sums of float32 change by some 1e-7

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def rehearse_algorithm(algorithm: Algorithm[Any], x: Tensor, schedule: Schedule) -> str | None:
    """Let devices exchange messages for a round, twice.

    Args:
        algorithm: of one's own.
        x: parameters to begin with.
        schedule: of the run; says how many neighbours are tried.

    Returns:
        A notice that an exchange changes the sum of x over devices; None if it does not.

    Raises:
        ScenarioError: it fails, gives what can't be used, or changes the sum of u.
    """
    num_devices = 1 + _num_neighbors(schedule)
    (bits, notice), (other_bits, _) = (_exchange(algorithm, x, num_devices) for _ in range(2))
    if bits != other_bits:
        raise ScenarioError(
            f"{ALGORITHM}: two rounds from the same state and generator differ; draw from the rng "
            "that you are given alone, and keep what changes in the state"
        )
    return notice


def small_change(x: Tensor, seed: int = 0) -> Tensor:
    """What a step might add to the parameters."""
    return torch.randn(len(x), generator=torch.Generator().manual_seed(seed)) / 100


def rehearse_compressor(compressor: Compressor, layout: ParameterLayout, x: Tensor) -> None:
    """Compress a vector twice, and read the message."""
    key, before = COMPRESSOR, x.clone()
    sent = []
    for _ in range(2):
        payload = called(key, "compress", compressor.compress, x, layout, new_rng())
        expect(key, "compress(x, layout, rng)", payload, Payload)
        sent.append(_as_bytes(key, "tried", payload, [layout])[0])
    if not torch.equal(x, before):
        raise ScenarioError(f"{key}: compress changes x, which is not its own; copy it first")
    if sent[0] != sent[1]:
        raise ScenarioError(
            f"{key}: two payloads of one vector and generator differ; draw from rng alone"
        )


def _as_bytes(
    key: str, name: str, payload: Payload, layouts: Sequence[ParameterLayout]
) -> tuple[bytes, Payload]:
    """A payload as a message, and as its receiver reads it: it must be as it was meant."""
    wrong, cause = None, None
    if payload.layout not in layouts:
        numels = " or ".join(str(layout.numel) for layout in layouts)
        wrong = f"its layout has {payload.layout.numel} entries, not {numels}"
    try:
        sent = payload.decode()
        data = encode(Message(name, 0, 1, 0, 0, 1.0, 1.0, payload))
        read = decode_one_of(data, {layout.digest: layout for layout in layouts}).payload
        if not torch.equal(read.decode(), sent):
            wrong = "its receiver reads other values"
        if not torch.isfinite(sent).all():
            wrong = "it has values that are not finite"
        if wrong is None:
            return data, read
    except Exception as error:  # noqa: BLE001 (whatever comes of such a payload)
        wrong, cause = wrong or f"{type(error).__name__}: {error}", error
    raise ScenarioError(
        f"{key}: a payload of {payload.num_values} values can't be sent: {wrong}; indices ascend, "
        "counts say how many values are of each tensor, codes are of the code's own type"
    ) from cause


def _exchange(algorithm: Algorithm[Any], x: Tensor, num_devices: int) -> tuple[bytes, str | None]:
    """Bits of all messages and states of a round, and a notice of a changed sum of x.

    All devices exchange with all others, with equal weights. Every algorithm that keeps the sums of
    x and u keeps them in such a round.
    """
    key, rng, weight = ALGORITHM, new_rng(), 1 / num_devices
    layouts, states, bits = message_layouts(algorithm), [], []
    devices = range(num_devices)
    for device in devices:
        in_weights = {other: weight for other in devices if other != device}
        place = Place(index=device, num_devices=num_devices, num_samples=1)
        state = called(key, "init", starting_state, algorithm, x.clone(), in_weights, place)
        _check_state(key, "init", state, x)
        state.x += small_change(x, seed=device)
        states.append(state)
    sums = _sums(states)
    arrived: dict[int, list[Share]] = {device: [] for device in devices}
    for sender, state in enumerate(states):
        for share in _shares_of(algorithm, state, sender, num_devices, rng):
            data, payload = _as_bytes(key, algorithm.name, share.payload, layouts)
            bits.append(data)
            arrived[share.peer].append(Share(sender, share.weight, share.push_weight, payload))
        _check_state(key, "send_", state, x)
    for receiver, state in enumerate(states):
        called(key, "absorb_", algorithm.absorb_, state, arrived[receiver])
        _check_state(key, "absorb_", state, x)
        bits += [state.x.numpy().tobytes(), repr(float(state.u)).encode()]
    return b"".join(bits), _change_of_sums(sums, _sums(states))


def _shares_of(
    algorithm: Algorithm[Any],
    state: Any,  # noqa: ANN401 (what an algorithm gives)
    sender: int,
    num_devices: int,
    rng: np.random.Generator,
) -> Sequence[Share]:
    """What a device sends to all others."""
    key = ALGORITHM
    edges = [OutEdge(n, 1 / num_devices) for n in range(num_devices) if n != sender]
    shares = called(key, "send_", algorithm.send_, state, edges, rng)
    if not isinstance(shares, list | tuple) or not all(isinstance(s, Share) for s in shares):
        raise ScenarioError(
            f"{key}: send_ gives {shown(shares)}; must be a list of Share, one for each out-edge"
        )
    for share in shares:
        expect(key, "the payload of a share", share.payload, Payload)
    try:
        check_shares(shares, edges)
    except (WrongSharesError, NonFiniteEntryError) as error:
        raise ScenarioError(f"{key}: {error}") from error
    return shares


def _sums(states: Sequence[GossipState]) -> tuple[Tensor, float]:
    """Sums of x and of u over devices."""
    return torch.stack([state.x for state in states]).double().sum(0), sum(s.u for s in states)


def _change_of_sums(before: tuple[Tensor, float], after: tuple[Tensor, float]) -> str | None:
    """A notice of a changed sum of x; a changed sum of u is refused."""
    remedy = "absorb_ must add at the receiver what send_ takes from the sender"
    (x_before, u_before), (x_after, u_after) = before, after
    if abs(u_after - u_before) > MASS_ERROR * u_before:
        raise ScenarioError(
            f"{ALGORITHM}: one exchange changes the sum of u over devices from {u_before:g} to "
            f"{u_after:g}; {remedy}"
        )
    change = float((x_after - x_before).norm() / x_before.norm())
    if change <= MASS_ERROR:
        return None
    return (
        f"{ALGORITHM}: one exchange changes the sum of x over devices by {change:.2g} of its norm: "
        f"gossip moves the average of the models; unless that is meant, {remedy}"
    )


def _check_state(key: str, after: str, state: object, x: Tensor) -> None:
    """Refuse a state that no device can train from, or that no checkpoint can hold."""
    if not isinstance(state, GossipState):
        raise ScenarioError(
            f"{key}: {after} gives {shown(state)}; must be a GossipState, or a dataclass that "
            "extends it"
        )
    found, u = state.x, state.u
    if not isinstance(found, Tensor) or found.shape != x.shape or found.dtype != x.dtype:
        raise ScenarioError(
            f"{key}: after {after} x is {shown(found)}; must stay float32 of shape {(len(x),)}"
        )
    if not torch.isfinite(found).all() or not isinstance(u, float) or not (isfinite(u) and u >= 0):
        raise ScenarioError(
            f"{key}: after {after} x or u is not finite, or u is {u!r}; u is a float, at least 0"
        )
    check_kept(key, state)


def _num_neighbors(schedule: Schedule) -> int:
    """Out-edges of a device in the first exchange, as far as they are tried."""
    round_index = first_exchange(schedule)
    degrees = (len(schedule.out_edges(n, round_index)) for n in range(schedule.num_devices))
    return max(1, min(MOST_NEIGHBORS, max(degrees)))


def check_compressor(compressor: Compressor, layout: ParameterLayout) -> None:
    """Refuse what a compressor says of its messages, if it can't be counted."""
    key = COMPRESSOR
    check_hash(key, compressor)
    expect(key, "form(layout)", called(key, "form", compressor.form, layout), MessageForm)
    said = called(key, "conventions", compressor.conventions, layout)
    if not isinstance(said, Mapping) or not all(
        isinstance(name, str) and isinstance(size, int | np.integer) for name, size in said.items()
    ):
        raise ScenarioError(
            f"{key}: conventions(layout) gives {shown(said)}; must be a dict of bytes by name, "
            "empty if nobody counts such messages"
        )
    keep = compressor.keep
    if not isinstance(keep, float | int) or not 0 < keep <= 1:
        raise ScenarioError(f"{key}: keep is {keep!r}; must be a share of the entries, in (0, 1]")


def check_algorithm(algorithm: Algorithm[Any]) -> None:
    """Refuse what an algorithm says of itself, if it can't be counted."""
    check_hash(ALGORITHM, algorithm)
    name = algorithm.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ScenarioError(f"{ALGORITHM}: name is {name!r}; must be 1 to 32 of a-z, 0-9 and _")
    expect(ALGORITHM, "work(1, 1)", called(ALGORITHM, "work", algorithm.work, 1, 1), Work)
    buffers = called(ALGORITHM, "buffers", algorithm.buffers, 1, 1)
    expect(ALGORITHM, "buffers(1, 1)", buffers, Buffers)
