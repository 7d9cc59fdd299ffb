"""A few devices of an algorithm of one's own, which take steps and exchange messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from hashlib import blake2b
from inspect import getattr_static
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.parts.own_calls import (
    called,
    check_finite,
    check_kept,
    expect,
    new_rng,
    shown,
)
from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Message, decode_one_of, encode
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import (
    Algorithm,
    GossipState,
    OutEdge,
    Place,
    Share,
    WrongSharesError,
    WrongStateError,
    check_shares,
    check_state,
)
from edgesim.gossip.optional_members import (
    is_idle_without_edges,
    message_layouts,
    starting_state,
)
from edgesim.learning.parameters import ParameterLayout
from edgesim.storage.state_tree import Packed, restore_

ALGORITHM = "gossip.algorithm"
MASS_ERROR = 1e-4  # relative; sums of float32 change by some 1e-7
ROUNDS = 3  # that are tried: some algorithms mix what they received in the next round only
LEARNING_RATE = 0.1  # of the steps between them
ALIKE = 0.85  # likeness of two names, one of which may be meant for the other
REMEDY = "absorb_ must add at the receiver what send_ takes from the sender"
REMEDY_OF_WEIGHTS = (
    "of x and u edge.weight leaves on each edge, share.weight times share.push_weight arrives; a "
    "formula for doubly stochastic weights alone says so by needs_exchanges"
)
REMEDY_OF_QUIET = (
    "send_ must leave the state as it is where out_edges is empty, as in rounds of local steps"
)
STATE_MEMBERS = frozenset({"take_rate_", "public_copies", "debiased"})

Weights: TypeAlias = Mapping[tuple[int, int], float]
"""Weights of edges by their ends: sender and receiver."""

UNLIKE: Weights = {(0, 1): 0.6, (0, 2): 0.2, (1, 0): 0.4, (2, 0): 0.1}
"""Column stochastic alone, so that push weights move; 1 / (degree + 1) is the weight of no edge."""

UNLIKE_AND_BALANCED: Weights = {(0, 1): 0.3, (1, 0): 0.3, (0, 2): 0.2, (2, 0): 0.2}
"""Symmetric, so that push weights stay 1."""


def small_change(x: Tensor, seed: int = 0) -> Tensor:
    """What a step might add to the parameters."""
    return torch.randn(len(x), generator=torch.Generator().manual_seed(seed)) / 100


class Trial:
    """Rounds of a few devices.

    Unless edges are given, all devices exchange with all others, with equal weights. Every
    algorithm that keeps the sums of x and u keeps them in such a round.

    Args:
        algorithm: of one's own.
        x: parameters to begin with.
        num_devices: number of devices.
        has_quiet: whether a round without out-edges comes before each exchange.
        resumes: whether all states are written and read back after each round.
        weights: of the edges, if they are not those of all with all. Edges to further devices than
            there are do not count.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        x: Tensor,
        num_devices: int,
        *,
        has_quiet: bool,
        resumes: bool = False,
        weights: Weights | None = None,
    ) -> None:
        self._algorithm, self._x, self._devices = algorithm, x, range(num_devices)
        self._has_quiet, self._resumes = has_quiet, resumes
        self._weights = _of_all_with_all(num_devices) if weights is None else weights
        self._what, self._remedy = "one exchange", REMEDY
        if weights is not None:
            self._what = "one exchange on links of unlike weights"
            self._remedy = f"{REMEDY}: {REMEDY_OF_WEIGHTS}"
        self._digests: dict[str, bytes] = {}
        self.states: list[Any] = [self._init(device) for device in self._devices]
        self.notice: str | None = None

    def run(self) -> None:
        """Do all rounds."""
        rng = new_rng()
        for round_index in range(ROUNDS):
            if self._has_quiet:
                self._step(ROUNDS + round_index)
                before = _sums(self.states)
                self._stay_quiet(rng)
                self._compare(before, "a round without out-edges", REMEDY_OF_QUIET)
            self._step(round_index)
            before = _sums(self.states)
            self._exchange(round_index, rng)
            also = f", and {REMEDY_OF_QUIET}" if self._has_quiet else ""
            self._compare(before, self._what, f"{self._remedy}{also}")
            for device, state in enumerate(self.states):
                packed = Packed.of(state, "state")
                self._note(f"round {round_index}", device, packed)
                if self._resumes:
                    self.states[device] = self._init(device)
                    restore_(self.states[device], packed.content, packed.arrays)

    def first_difference(self, other: Trial) -> str:
        """Where another trial has other bits, in words; empty if nowhere."""
        places = (place for place, digest in self._digests.items() if other.at(place) != digest)
        return next(places, "")

    def at(self, place: str) -> bytes | None:
        """Digest of a message, or of a part of a state, after a round."""
        return self._digests.get(place)

    def _init(self, device: int) -> Any:  # noqa: ANN401 (what an algorithm gives)
        in_weights = {
            sender: weight
            for (sender, receiver), weight in self._weights.items()
            if receiver == device and sender in self._devices
        }
        place = Place(index=device, num_devices=len(self._devices), num_samples=1)
        arguments = self._algorithm, self._x.clone(), in_weights, place
        state = called(ALGORITHM, "init", starting_state, *arguments)
        _check_state(ALGORITHM, "init", state, self._x)
        return state

    def _step(self, seed: int) -> None:
        """A local step of each device."""
        for device, state in enumerate(self.states):
            state.x += small_change(self._x, seed=seed * len(self._devices) + device)
            called(ALGORITHM, "take_rate_", state.take_rate_, LEARNING_RATE)

    def _stay_quiet(self, rng: np.random.Generator) -> None:
        """A round in which no device has an edge."""
        for state in self.states:
            if not is_idle_without_edges(self._algorithm):
                _checked_shares(self._algorithm, state, [], rng)
                _check_state(ALGORITHM, "send_", state, self._x)
            called(ALGORITHM, "absorb_", self._algorithm.absorb_, state, [])
            _check_state(ALGORITHM, "absorb_", state, self._x)

    def _compare(self, before: tuple[Tensor, float], what: str, remedy: str) -> None:
        """Note if the sums over devices are no more what they were."""
        notice = _change_of_sums(before, _sums(self.states), what, remedy)
        self.notice = self.notice or notice

    def _exchange(self, round_index: int, rng: np.random.Generator) -> None:
        key, algorithm = ALGORITHM, self._algorithm
        layouts = message_layouts(algorithm)
        arrived: dict[int, list[Share]] = {device: [] for device in self._devices}
        for sender, state in enumerate(self.states):
            for share in _checked_shares(algorithm, state, self._out_edges(sender), rng):
                data, payload = as_bytes(key, algorithm.name, share.payload, layouts)
                edge = f"message {sender} -> {share.peer} of round {round_index}"
                self._digests[edge] = blake2b(data).digest()
                arrived[share.peer].append(Share(sender, share.weight, share.push_weight, payload))
            _check_state(key, "send_", state, self._x)
        for receiver, state in enumerate(self.states):
            called(key, "absorb_", algorithm.absorb_, state, arrived[receiver])
            _check_state(key, "absorb_", state, self._x)

    def _out_edges(self, device: int) -> list[OutEdge]:
        return [
            OutEdge(receiver, weight)
            for (sender, receiver), weight in self._weights.items()
            if sender == device and receiver in self._devices
        ]

    def _note(self, when: str, device: int, packed: Packed) -> None:
        for path, array in packed.arrays.items():
            named = path.partition("/")[2]
            place = f"{named} of a state after {when}"
            self._digests[f"{place}, device {device}"] = blake2b(array.tobytes()).digest()
        rest = json.dumps(packed.content).encode()
        self._digests[f"numbers of a state after {when}, device {device}"] = blake2b(rest).digest()


def _of_all_with_all(num_devices: int) -> Weights:
    """Equal weights of all edges among devices."""
    return dict.fromkeys(permutations(range(num_devices), 2), 1 / num_devices)


def as_bytes(
    key: str, name: str, payload: Payload, layouts: Sequence[ParameterLayout]
) -> tuple[bytes, Payload]:
    """A payload as a message, and as its receiver reads it: it must be as it was meant."""
    if payload.layout not in layouts:
        remedy = "; name it in message_layouts" if key == ALGORITHM else ""
        size, wanted = _size(payload.layout), [_size(layout) for layout in layouts]
        differs = f"has {size}, not {' or '.join(wanted)}"
        if size in wanted:
            differs = "has tensors of other names or shapes"
        raise ScenarioError(
            f"{key}: a payload of {payload.num_values} values can't be sent: its layout "
            f"{differs}{remedy}"
        )
    wrong, cause = None, None
    try:
        own_type = payload.code.unpack(np.empty(0, np.uint8), 0).dtype
        if payload.codes.dtype != own_type:
            wrong = f"its codes are {payload.codes.dtype}; {payload.code.label} takes {own_type}"
        wrong = payload.wrong_positions() or wrong
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


def _size(layout: ParameterLayout) -> str:
    tensors = len(layout.names)
    return f"{layout.numel} entries in {tensors} {'tensor' if tensors == 1 else 'tensors'}"


def _checked_shares(
    algorithm: Algorithm[Any],
    state: Any,  # noqa: ANN401 (what an algorithm gives)
    edges: Sequence[OutEdge],
    rng: np.random.Generator,
) -> Sequence[Share]:
    """What a device sends on its edges."""
    key = ALGORITHM
    shares = called(key, "send_", algorithm.send_, state, edges, rng)
    if not isinstance(shares, list | tuple) or not all(isinstance(s, Share) for s in shares):
        given = shown(shares)
        if isinstance(shares, list | tuple):
            given = f"a list with {next(shown(s) for s in shares if not isinstance(s, Share))}"
        raise ScenarioError(
            f"{key}: send_ gives {given}; must be a list of Share, one for each out-edge"
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


def _change_of_sums(
    before: tuple[Tensor, float], after: tuple[Tensor, float], what: str, remedy: str
) -> str | None:
    """A notice of a changed sum of x; a changed sum of u is refused."""
    (x_before, u_before), (x_after, u_after) = before, after
    if abs(u_after - u_before) > MASS_ERROR * u_before:
        raise ScenarioError(
            f"{ALGORITHM}: {what} changes the sum of u over devices from {u_before:g} to "
            f"{u_after:g}; {remedy}"
        )
    change = float((x_after - x_before).norm() / x_before.norm())
    if change <= MASS_ERROR:
        return None
    return (
        f"{ALGORITHM}: {what} changes the sum of x over devices by {change:.2g} of its norm: "
        f"gossip moves the average of the models; unless that is meant, {remedy}"
    )


def _check_state(key: str, after: str, state: object, x: Tensor) -> None:
    """Refuse a state that no device can train from, or that no checkpoint can hold."""
    if not isinstance(state, GossipState):
        raise ScenarioError(
            f"{key}: {after} gives {shown(state)}; must be a GossipState, or a dataclass that "
            "extends it"
        )
    try:
        check_state(state, after, len(x), x.dtype)
    except WrongStateError as error:
        raise ScenarioError(f"{key}: {error}") from error
    check_finite(key, f"after {after}", state.x)
    check_kept(key, state)


def misspelt(kind: type, known: Collection[str], base: type = object) -> list[str]:
    """Notices of members whose names are nearly those of members that edgesim reads.

    Args:
        kind: class of one's own.
        known: names of members that it may have.
        base: class with defaults of these.
    """
    own = {
        name
        for name in dir(kind)
        if not name.startswith("_")
        and getattr_static(kind, name) is not getattr_static(base, name, None)
    }
    return [
        f"{ALGORITHM}: {kind.__name__} has a member {name}, which edgesim does not read; did you "
        f"mean {meant[0]}?"
        for name in sorted(own - set(known))
        if (meant := get_close_matches(name, set(known) - own, n=1, cutoff=ALIKE))
    ]
