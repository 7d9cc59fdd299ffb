"""Algorithms and compressors of one's own are tried before a run: they exchange some messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.own_calls import (
    called,
    check_finite,
    check_hash,
    check_kept,
    expect,
    flat_vectors,
    new_rng,
    shown,
)
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
from edgesim.gossip.optional_members import (
    Disagreement,
    NeededExchanges,
    message_layouts,
    starting_state,
)
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout
from edgesim.storage.state_tree import Packed, restore_
from topologies import Schedule, first_exchange

ALGORITHM, COMPRESSOR = "gossip.algorithm", "gossip.compressor.kind"
MOST_NEIGHBORS = 2  # of a device that is tried
MASS_ERROR = 1e-4  # relative; sums of float32 change by some 1e-7
ROUNDS = 3  # that are tried: some algorithms mix what they received in the next round only
LEARNING_RATE = 0.1  # of the steps between them
VECTOR_ERROR = 0.5  # of a flat vector
SCALE = 1e4  # of the cubes of a small change, which makes them as large as that

_CHOICES = {"needs_exchanges": get_args(NeededExchanges), "disagrees": get_args(Disagreement)}
"""Values of optional members of the class, the default first."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def rehearse_algorithm(algorithm: Algorithm[Any], x: Tensor, schedule: Schedule) -> str | None:
    """Let devices take steps and exchange messages for some rounds, three times.

    The second time must give the bits of the first. So must the third, in which all states are
    written and read back after each round, as checkpoints are.

    Args:
        algorithm: of one's own.
        x: parameters to begin with.
        schedule: of the run; says how many neighbours are tried.

    Returns:
        A notice that an exchange changes the sum of x over devices; None if it does not.

    Raises:
        ScenarioError: it fails, gives what can't be used, changes the sum of u, holds more memory
            than it says, or has other bits when it is repeated or resumed.
    """
    num_devices = 1 + _num_neighbors(schedule)
    first = _Trial(algorithm, x, num_devices)
    first.run()
    _check_memory(algorithm, first.states, num_devices - 1)
    again = _Trial(algorithm, x, num_devices)
    again.run()
    if place := first.first_difference(again):
        raise ScenarioError(
            f"{ALGORITHM}: two rounds from the same state and generator differ ({place}); draw "
            "from the rng that you are given alone, and keep what changes in the state"
        )
    resumed = _Trial(algorithm, x, num_devices, resumes=True)
    resumed.run()
    if place := first.first_difference(resumed):
        raise ScenarioError(
            f"{ALGORITHM}: after a checkpoint it goes on with other bits ({place}); keep all that "
            "changes in the state, and let no two of its tensors share memory: clone one of them"
        )
    return first.notice


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
    numbers = numbers_of_entries(compressor, layout, x)
    form = called(key, "form", compressor.form, layout)
    _check_form(form, payload, [payload.num_values, *numbers])


def numbers_of_entries(compressor: Compressor, layout: ParameterLayout, x: Tensor) -> list[int]:
    """How many entries are sent of unlike vectors, with other random numbers."""
    numbers = []
    for seed, scale in ((1, SCALE), (2, SCALE**3)):
        unlike = scale * small_change(x, seed) ** 3
        other = called(COMPRESSOR, "compress", compressor.compress, unlike, layout, new_rng(seed))
        expect(COMPRESSOR, "compress(x, layout, rng)", other, Payload)
        numbers.append(other.num_values)
    return numbers


def _check_form(form: MessageForm, payload: Payload, numbers: Sequence[int]) -> None:
    """Refuse a form that is not that of a message: clocks and energy of a run go by it.

    Args:
        form: that the compressor says.
        payload: that it made.
        numbers: of values in payloads. Where they differ, since they depend on the vector or on
            chance, a form says the largest.
    """
    is_sparse = payload.indices is not None
    said, made = (
        f"MessageForm.{'sparse' if has_indices else 'dense'} in {code.label}"
        for has_indices, code in ((form.is_sparse, form.code), (is_sparse, payload.code))
    )
    if said == made and (len(set(numbers)) == 1 or max(numbers) > form.entries):
        said, made = f"{form.entries} values", f"{max(numbers)} values"
    if said != made:
        raise ScenarioError(
            f"{COMPRESSOR}: form(layout) says {said}, but compress makes a payload of {made}; say "
            "what is sent, since clocks and energy of a run go by it"
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


class _Trial:
    """Rounds of a few devices.

    All devices exchange with all others, with equal weights. Every algorithm that keeps the sums of
    x and u keeps them in such a round.

    Args:
        algorithm: of one's own.
        x: parameters to begin with.
        num_devices: number of devices.
        resumes: whether all states are written and read back after each round.
    """

    def __init__(
        self, algorithm: Algorithm[Any], x: Tensor, num_devices: int, *, resumes: bool = False
    ) -> None:
        self._algorithm, self._x, self._devices = algorithm, x, range(num_devices)
        self._resumes = resumes
        self._digests: dict[str, bytes] = {}
        self.states: list[Any] = [self._init(device) for device in self._devices]
        self.notice: str | None = None

    def run(self) -> None:
        """Do all rounds."""
        rng = new_rng()
        for round_index in range(ROUNDS):
            for device, state in enumerate(self.states):
                state.x += small_change(self._x, seed=round_index * len(self._devices) + device)
                called(ALGORITHM, "take_rate_", state.take_rate_, LEARNING_RATE)
            before = _sums(self.states)
            self._exchange(round_index, rng)
            self.notice = self.notice or _change_of_sums(before, _sums(self.states))
            for device, state in enumerate(self.states):
                packed = Packed.of(state, "state")
                self._note(f"round {round_index}", device, packed)
                if self._resumes:
                    self.states[device] = self._init(device)
                    restore_(self.states[device], packed.content, packed.arrays)

    def first_difference(self, other: _Trial) -> str:
        """Where another trial has other bits, in words; empty if nowhere."""
        places = (place for place, digest in self._digests.items() if other.at(place) != digest)
        return next(places, "")

    def at(self, place: str) -> bytes | None:
        """Digest of a message, or of a part of a state, after a round."""
        return self._digests.get(place)

    def _init(self, device: int) -> Any:  # noqa: ANN401 (what an algorithm gives)
        weight = 1 / len(self._devices)
        in_weights = {other: weight for other in self._devices if other != device}
        place = Place(index=device, num_devices=len(self._devices), num_samples=1)
        arguments = self._algorithm, self._x.clone(), in_weights, place
        state = called(ALGORITHM, "init", starting_state, *arguments)
        _check_state(ALGORITHM, "init", state, self._x)
        return state

    def _exchange(self, round_index: int, rng: np.random.Generator) -> None:
        key, algorithm = ALGORITHM, self._algorithm
        layouts = message_layouts(algorithm)
        arrived: dict[int, list[Share]] = {device: [] for device in self._devices}
        for sender, state in enumerate(self.states):
            for share in _shares_of(algorithm, state, sender, len(self._devices), rng):
                data, payload = _as_bytes(key, algorithm.name, share.payload, layouts)
                edge = f"message {sender} -> {share.peer} of round {round_index}"
                self._digests[edge] = blake2b(data).digest()
                arrived[share.peer].append(Share(sender, share.weight, share.push_weight, payload))
            _check_state(key, "send_", state, self._x)
        for receiver, state in enumerate(self.states):
            called(key, "absorb_", algorithm.absorb_, state, arrived[receiver])
            _check_state(key, "absorb_", state, self._x)

    def _note(self, when: str, device: int, packed: Packed) -> None:
        for path, array in packed.arrays.items():
            named = path.partition("/")[2]
            place = f"{named} of a state after {when}"
            self._digests[f"{place}, device {device}"] = blake2b(array.tobytes()).digest()
        rest = json.dumps(packed.content).encode()
        self._digests[f"numbers of a state after {when}, device {device}"] = blake2b(rest).digest()


def _check_memory(algorithm: Algorithm[Any], states: Sequence[Any], degree: int) -> None:
    """Refuse an algorithm whose states hold more than its `buffers` says."""
    kept = called(ALGORITHM, "buffers", algorithm.buffers, degree, degree).kept
    numel = algorithm.layout.numel
    for state in states:
        vectors = flat_vectors(state, numel) - 1
        if vectors > kept + VECTOR_ERROR:
            raise ScenarioError(
                f"{ALGORITHM}: buffers({degree}, {degree}) says that {kept} flat vectors are kept "
                f"beside x; the state holds {vectors:.3g}: say so, since memory is counted by it"
            )


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
    check_finite(key, f"after {after}", found)
    if not isinstance(u, float) or not (isfinite(u) and u >= 0):
        raise ScenarioError(
            f"{key}: after {after} u is {shown(u)}; must be a finite float of Python, at least 0"
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
    for member, known in _CHOICES.items():
        if (value := getattr(algorithm, member, known[0])) not in known:
            told = ", ".join(repr(one) for one in known)
            raise ScenarioError(f"{ALGORITHM}: {member} is {value!r}; must be one of {told}")
    expect(ALGORITHM, "work(1, 1)", called(ALGORITHM, "work", algorithm.work, 1, 1), Work)
    buffers = called(ALGORITHM, "buffers", algorithm.buffers, 1, 1)
    expect(ALGORITHM, "buffers(1, 1)", buffers, Buffers)
