"""What parts do when they are tried as one's own are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from edgesim.assembly.build import name_devices
from edgesim.assembly.gossip import make_algorithm
from edgesim.assembly.parts.checked_compressor import CheckedCompressor
from edgesim.assembly.rehearsal.rehearsal_of_gossip import rehearse_algorithm, rehearse_compressor
from edgesim.compression.buckets import message_layout
from edgesim.compression.compressors import QSGD, Identity, RandomK, SignScale, TopK
from edgesim.compression.errors import CompressionError, WrongPayloadError
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.compression.segments import Segments
from edgesim.compression.value_codes import FloatCode
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Share
from edgesim.gossip.beer import Beer
from edgesim.gossip.choco import Choco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.gossip.optional_members import message_layouts
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario import load_scenario

LAYOUT = ParameterLayout.from_shapes([(30, 20), (20,)])
TOP_K = "compressor: {kind: top_k, keep: 0.1}"


X = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 10
IRREGULAR = "erdos_renyi, probability: 0.5"


def fleet(gossip, topology="ring", *more):
    """A scenario of eight devices, and its graphs."""
    overrides = [f"gossip={{{gossip}}}", f"topology={{kind: {topology}}}", *more]
    return name_devices(load_scenario("scenarios/quickstart.yaml", overrides))


def tried(gossip, topology="ring"):
    scenario, schedule = fleet(gossip, topology)
    algorithm, other = (make_algorithm(scenario, LAYOUT, schedule) for _ in range(2))
    return rehearse_algorithm(algorithm, other, X, schedule, mass_moves=False)


def tried_own(algorithm, topology, *, mass_moves=False, absent=""):
    """An algorithm of one's own, with the graphs of another one."""
    _, schedule = fleet("algorithm: gradient_push", topology, *([absent] if absent else []))
    made = algorithm(compressor=Identity("fp32"), layout=LAYOUT, averaging_rate=0.9)
    return rehearse_algorithm(made, made, X, schedule, mass_moves=mass_moves)


@pytest.mark.parametrize(
    "gossip",
    [
        f"algorithm: choco, averaging_rate: 0.3, {TOP_K}",
        f"algorithm: choco_numerator, averaging_rate: 0.3, {TOP_K}",
        f"algorithm: deepsqueeze, averaging_rate: 0.3, {TOP_K}",
        "algorithm: gradient_push",
        "algorithm: d2, averaging_rate: 0.9",
        "algorithm: gut",
        f"algorithm: beer, averaging_rate: 0.3, {TOP_K}",
        "algorithm: gradient_tracking",
        "algorithm: momentum_tracking",
    ],
)
def test_those_that_keep_the_sums_keep_them(gossip):
    """On a ring each of three devices has two neighbours; trackers send two vectors at once."""
    assert tried(gossip) == ()


def test_a_device_with_one_neighbour_is_tried_with_one():
    assert tried(f"algorithm: choco, averaging_rate: 0.3, {TOP_K}", "directed_ring") == ()


@pytest.mark.parametrize(
    "gossip",
    [
        f"algorithm: choco, averaging_rate: 0.3, {TOP_K}",
        f"algorithm: choco_numerator, averaging_rate: 0.3, {TOP_K}",
        f"algorithm: deepsqueeze, averaging_rate: 0.3, {TOP_K}",
        "algorithm: gradient_push",
    ],
)
@pytest.mark.parametrize("topology", [IRREGULAR, "star"])
def test_those_for_all_graphs_keep_the_sums_where_push_weights_move(gossip, topology):
    assert tried(gossip, topology) == ()


class ForgetsPushWeight(GradientPush):
    def absorb_(self, state, received):
        for share in received:
            arriving = self.averaging_rate * share.weight
            share.payload.add_to_(state.x, scale=arriving)
            state.u += arriving


class WeighsAtReceiver(GradientPush):
    def absorb_(self, state, received):
        for share in received:
            arriving = self.averaging_rate / (1 + len(received))
            share.payload.add_to_(state.x, scale=arriving)
            state.u += arriving * share.push_weight


class WeighsByDegree(GradientPush):
    def send_(self, state, out_edges, rng):
        shares = super().send_(state, out_edges, rng)
        left = 1 - self.averaging_rate * sum(edge.weight for edge in out_edges)
        own = 1 - self.averaging_rate * len(out_edges) / (1 + len(out_edges))
        state.x *= own / left
        state.u *= own / left
        return shares


@pytest.mark.parametrize(
    ("wrong", "topology"),
    [
        (ForgetsPushWeight, IRREGULAR),
        (WeighsAtReceiver, IRREGULAR),
        (WeighsAtReceiver, "star, weights: metropolis"),
        (WeighsByDegree, "star, weights: metropolis"),
    ],
)
def test_one_that_is_right_for_equal_weights_alone_is_refused(wrong, topology):
    """With equal weights of all with all push weights stay 1, and 1 / degree is the weight."""
    said = "one exchange on links of unlike weights changes the sum of u over devices from 3 to"
    with pytest.raises(ScenarioError, match=said):
        tried_own(wrong, topology)


class Averages(GradientPush):
    """The mean of the own model and of those that arrive; push weights are left alone."""

    def send_(self, state, out_edges, rng):
        message = self.compressor.compress(state.x, self.layout, rng)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state, received):
        for share in received:
            share.payload.add_to_(state.x)
        state.x /= 1 + len(received)


@pytest.mark.parametrize(
    ("special", "topology"),
    [
        (ForgetsPushWeight, "star, weights: metropolis"),
        (WeighsByDegree, "directed_ring"),
        (Averages, "ring"),
        (Averages, "random_matching"),
    ],
)
def test_what_is_right_for_the_weights_of_a_run_may_run_with_them(special, topology):
    assert tried_own(special, topology) == ()


def test_who_comes_and_goes_leaves_unlike_weights_on_every_graph():
    with pytest.raises(ScenarioError, match="on links of unlike weights"):
        tried_own(ForgetsPushWeight, "ring", mass_moves=True)


ABSENT = "fleet.churn={absent: [{device: 1, from_round: 2, until_round: 9}]}"


class MovesTowards(Averages):
    """x_i + sum_j w_ij (x_j - x_i): right for all doubly stochastic weights."""

    def absorb_(self, state, received):
        before = state.x.clone()
        for share in received:
            share.payload.add_to_(state.x, scale=share.weight)
            state.x.add_(before, alpha=-share.weight)


def test_absences_leave_symmetric_weights_balanced_and_others_not():
    assert tried_own(MovesTowards, "ring", absent=ABSENT) == ()
    assert tried_own(MovesTowards, "star, weights: metropolis", absent=ABSENT) == ()
    (told,) = tried_own(MovesTowards, "directed_ring", absent=ABSENT)
    assert "one exchange on links of unlike weights changes the sum of x" in told


def test_unlike_weights_that_move_the_average_are_told_of():
    (told,) = tried_own(Averages, IRREGULAR)
    assert "one exchange on links of unlike weights changes the sum of x over devices" in told


class OnTrianglesAlone(ForgetsPushWeight):
    def graph_problem(self, graph):
        return "" if graph.number_of_edges() == 6 else "it is no triangle"


def test_an_algorithm_is_not_tried_on_a_graph_that_it_refuses():
    assert tried_own(OnTrianglesAlone, IRREGULAR) == ()


def test_one_that_moves_the_average_is_told_of():
    """DCD loses at the sender what its compressor leaves out."""
    (told,) = tried(f"algorithm: dcd, {TOP_K}")
    assert "changes the sum of x" in told


class Forgetful(Beer):
    """Sends two vectors in one message, and does not say so."""

    message_layouts = None


def test_a_message_of_two_vectors_that_is_not_announced_is_told_by_its_member():
    said = (
        "gossip.algorithm: .* its layout has 1240 entries in 4 tensors, not 620 entries in 2 "
        "tensors; name it in message_layouts"
    )
    with pytest.raises(ScenarioError, match=said):
        tried_own(Forgetful, "ring")


@dataclass(frozen=True)
class Other:
    """Sends what `TopK` sends, changed a little."""

    changes: dict[str, object]
    said: dict[str, object]

    def compress(self, x, layout, rng):
        payload = TopK(0.1, "fp32").compress(x, layout, rng)
        changes = {name: change(getattr(payload, name)) for name, change in self.changes.items()}
        return replace(payload, **changes)

    def form(self, layout):
        return replace(TopK(0.1, "fp32").form(layout), **self.said)


@pytest.mark.parametrize(
    ("changes", "said", "problem"),
    [
        (
            {"indices": torch.tensor},
            {},
            "its indices are a tensor of torch; must be an array of numpy: indices.numpy()",
        ),
        ({"counts": torch.tensor}, {}, "its counts are a tensor of torch; must be an array"),
        ({"counts": np.ndarray.tolist}, {}, "counts are a list; must be an int64 array of numpy"),
        (
            {"indices": lambda indices: indices.astype(np.int32)},
            {},
            "its indices are int32 of shape (60,); must be int64, one axis",
        ),
        ({"counts": lambda counts: counts[None]}, {}, "its counts are int64 of shape (1, 2)"),
        (
            {"counts": lambda counts: np.repeat(counts, 3)},
            {},
            "it has 6 counts; must be 2, one for each tensor",
        ),
        ({}, {"counts": np.array([3, 3])}, "says 6 values, but compress makes a payload of 60 "),
        (
            {},
            {"is_sparse": False},
            (
                "form(layout) says MessageForm.dense in fp32, but compress makes a payload of "
                "MessageForm.sparse in fp32; say what is sent, since clocks and energy"
            ),
        ),
        ({}, {"code": FloatCode(16)}, "form(layout) says MessageForm.sparse in fp16, but compre"),
    ],
)
def test_a_payload_is_of_the_right_types_and_as_its_form_says(changes, said, problem):
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ScenarioError) as caught:
        rehearse_compressor(*2 * [Other(changes, said)], LAYOUT, x)
    assert str(caught.value).startswith("gossip.compressor.kind: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["indices", "counts"])
def test_the_wrong_type_is_refused_in_a_run_too(name):
    """Numpy takes it; the compiled code, which comes later, does not."""
    payload = Other({name: torch.tensor}, {}).compress(
        torch.arange(float(LAYOUT.numel)), LAYOUT, np.random.default_rng(0)
    )
    with pytest.raises(CompressionError, match=f"its {name} are a tensor of torch;"):
        _ = payload.sections


@dataclass(frozen=True)
class Large:
    """Sends the entries above a threshold; says that a tensor has at most so many of them."""

    share: float = 1.0

    def compress(self, x, layout, rng):
        entries = x.numpy()
        indices = np.flatnonzero(np.abs(entries) > 0.01)
        counts = np.diff(np.searchsorted(indices, layout.offsets))
        codes, scales = FloatCode(32).quantize(entries[indices], Segments(counts))
        return Payload(layout, FloatCode(32), indices, counts, codes, scales)

    def form(self, layout):
        counts = (self.share * layout.size_array).astype(np.int64)
        return MessageForm.sparse(FloatCode(32), counts, layout, select_ops=layout.numel)


def test_a_compressor_whose_messages_differ_in_length_may_say_the_most():
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    rehearse_compressor(Large(), Large(), LAYOUT, x)


def test_it_may_not_say_less():
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    with pytest.raises(ScenarioError, match="says 62 values, but compress makes a payload of "):
        rehearse_compressor(Large(0.1), Large(0.1), LAYOUT, x)


def negated(codes):
    return -codes


def of_other_entries(codes):
    return codes[::-1].copy()


def too_large(codes):
    return np.float32(2.5) * codes


def doubled(codes):
    return 2 * codes


def nothing(codes):
    return 0 * codes


@pytest.mark.parametrize("wrong", [negated, of_other_entries, too_large, doubled, nothing])
def test_a_compressor_whose_error_is_as_large_as_the_vector_is_told_of(wrong):
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    told = rehearse_compressor(*2 * [Other({"codes": wrong}, {})], LAYOUT, x)
    assert told.startswith("gossip.compressor.kind: the error |x - C(x)|^2 is ")
    assert "CHOCO, BEER and DeepSqueeze need a smaller one" in told


@dataclass(frozen=True)
class Unbiased(RandomK):
    """Sends as many entries as `RandomK`, divided by their share."""

    def compress(self, x, layout, rng):
        return RandomK.compress(self, x / self.keep, layout, rng)


@pytest.mark.parametrize(
    ("right", "is_told"),
    [
        (TopK(0.01, "fp16"), False),
        (RandomK(0.01, "fp32"), False),
        (Identity("int8"), False),
        (SignScale(), False),
        (QSGD(1, biased=True), False),
        (QSGD(6), False),
        (QSGD(1), True),
        (Unbiased(0.8, "fp32"), False),
        (Unbiased(0.1, "fp32"), True),
    ],
)
def test_one_whose_error_is_smaller_is_not(right, is_told):
    """An unbiased one may have a larger error; then CHOCO diverges with it."""
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    assert bool(rehearse_compressor(right, right, LAYOUT, x)) == is_told


@dataclass(frozen=True)
class Blocks(SignScale):
    """Of one's own: its payloads have a tensor for each two entries of x."""

    def message_layout(self, layout):
        return ParameterLayout.from_shapes([(2,)] * (layout.numel // 2))


@dataclass(frozen=True)
class Untold(Blocks):
    """The same, but for the layout of its payloads, of which it says nothing."""

    def compress(self, x, layout, rng):
        return SignScale.compress(self, x, Blocks.message_layout(self, layout), rng)

    def message_layout(self, layout):
        return layout


def test_a_compressor_may_send_in_a_layout_that_it_names():
    """In a trial, and in a run, where each payload is checked."""
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    own = CheckedCompressor(Blocks())
    assert rehearse_compressor(Blocks(), Blocks(), LAYOUT, x) is None
    payload = own.compress(x, LAYOUT, np.random.default_rng(0))
    assert payload.layout == message_layout(own, LAYOUT) != LAYOUT
    algorithm = Choco(compressor=own, layout=LAYOUT, averaging_rate=0.5)
    assert message_layouts(algorithm) == (LAYOUT, payload.layout)


def test_one_that_does_not_name_it_is_refused():
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    with pytest.raises(ScenarioError, match=r"its layout has .* entries in .* tensors, not "):
        rehearse_compressor(Untold(), Untold(), LAYOUT, x)
    with pytest.raises(WrongPayloadError, match="a payload of another layout"):
        CheckedCompressor(Untold()).compress(x, LAYOUT, np.random.default_rng(0))


@dataclass(frozen=True)
class Nameless(Blocks):
    """Its `message_layout` returns nothing."""

    def message_layout(self, layout):
        Blocks.message_layout(self, layout)

    def compress(self, x, layout, rng):
        return SignScale.compress(SignScale(), x, layout, rng)


def test_one_that_names_no_layout_is_refused():
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    with pytest.raises(ScenarioError, match=r"message_layout\(layout\) .*ParameterLayout"):
        rehearse_compressor(Nameless(), Nameless(), LAYOUT, x)


def test_values_beyond_the_range_of_the_code_may_be_refused():
    """As docs/own-algorithm.md asks; some of the vectors that are tried have such values."""
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    assert rehearse_compressor(*2 * [Identity("fp16")], LAYOUT, x) is None


def test_one_that_differs_when_it_is_made_again_is_refused():
    """Each process of a run makes its own."""
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 100
    drawn = Other({"codes": lambda codes: codes + np.float32(1)}, {})
    with pytest.raises(ScenarioError, match="two payloads of one vector and generator differ"):
        rehearse_compressor(Other({}, {}), drawn, LAYOUT, x)
