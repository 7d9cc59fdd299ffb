"""Memory that is predicted against memory that is measured, and both against counts by hand."""

import contextlib
from dataclasses import replace
from functools import partial

import pytest
import torch
from cost_models import SETTINGS, batch_of, flat_model, fp32, int8
from memory_meter import measure_device_memory
from step_watch import watch_step
from storage_ledger import StorageLedger
from thorough import each_once
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, SignScale, TopK
from edgesim.costs.closed_form import closed_form
from edgesim.costs.errors import CostError
from edgesim.costs.memory import MemoryModel, paper_memory
from edgesim.costs.memory_table import MemoryTable
from edgesim.costs.model_form import ModelForm
from edgesim.costs.step_replay import peak_of_step
from edgesim.costs.work_meter import WorkMeter
from edgesim.gossip.algorithm import OutEdge
from edgesim.gossip.bagua_decentralized import BaguaDecentralized
from edgesim.gossip.bagua_low_precision import BaguaLowPrecision
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.gossip.optional_members import for_device
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import QuasiGlobalMomentum, Sgd
from edgesim.learning.parameters import ParameterLayout
from edgesim.models import MODELS
from edgesim.models.classifier import ImageClassifier
from edgesim.models.resnet import BasicBlock
from edgesim.quant.backends import choose_backend, make_backend

SGD = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)
TOP_1_PERCENT = TopK(keep=0.01, values="fp32")
ARITHMETICS = ["fp32", "reference", "int8_cpu"]


def make_layers(arithmetic, settings=SETTINGS, norm=None):
    if arithmetic == "fp32":
        return fp32(norm or "evonorm_s0")
    if arithmetic == "int8_cpu" and choose_backend("auto", settings, "cpu") != "int8_cpu":
        pytest.skip("this processor has no integer kernels")
    return int8(settings, norm or "range_evonorm", make_backend(arithmetic, settings))


def formulas(name, side, batch_size, arithmetic, settings=SETTINGS, norm=None):
    is_fp32 = arithmetic == "fp32"
    form = ModelForm(
        name=name,
        image_shape=(3, side, side),
        num_classes=10,
        norm=norm or ("evonorm_s0" if is_fp32 else "range_evonorm"),
        settings=None if is_fp32 else settings,
    )
    return closed_form(form, batch_size)


def make_algorithm(kind, compressor, layout):
    rate = {} if kind is Dcd else {"averaging_rate": 0.01}
    return kind(compressor=compressor, layout=layout, **rate)


def both(
    name,
    side,
    batch_size,
    arithmetic,
    *,
    settings=SETTINGS,
    norm=None,
    kind=FixedGraphChoco,
    compressor=TOP_1_PERCENT,
    degrees=(2, 2),
    optimizer=SGD,
    num_met_before=0,
):
    """Memory of one device, predicted and measured."""
    model = flat_model(name, (3, side, side), make_layers(arithmetic, settings, norm))
    out_degree, in_degree = degrees
    measured = measure_device_memory(
        model=model,
        batch=batch_of((3, side, side), batch_size),
        optimizer=optimizer,
        algorithm=make_algorithm(kind, compressor, model.layout),
        out_edges=[OutEdge(peer, 1 / (out_degree + 1)) for peer in range(out_degree)],
        in_weights=dict.fromkeys(range(in_degree), 1 / (out_degree + 1)),
        met_before=range(100, 100 + num_met_before),
    )
    by_formula = formulas(name, side, batch_size, arithmetic, settings, norm)
    predicted = MemoryModel(
        model=by_formula,
        backend=None if arithmetic == "fp32" else arithmetic,
        optimizer=optimizer,
        algorithm=make_algorithm(
            kind, compressor, ParameterLayout.from_shapes(by_formula.flat_shapes)
        ),
        out_degree=out_degree,
        in_degree=in_degree,
        message_bytes=measured.message_bytes,
        kept_edges=(out_degree + num_met_before, in_degree + num_met_before),
    ).faithful()
    return predicted, measured.at_peak


def assert_equal(predicted, measured):
    """To 2 % as asked for; in truth but for single bytes of index codes and single biases."""
    assert predicted.total == pytest.approx(measured.total, rel=0.02)
    assert predicted.total == pytest.approx(measured.total, rel=2e-4)
    for component, held in predicted.by_component.items():
        expected = measured.by_component[component]
        assert held == pytest.approx(expected, rel=1e-3, abs=2e-4 * measured.total), component


@pytest.mark.parametrize(("name", "arithmetic"), each_once(MODELS, ARITHMETICS))
def test_predicted_memory_is_measured_for_every_model(name, arithmetic):
    gossip = {"kind": DeepSqueeze, "compressor": Identity(values="int8")}
    assert_equal(*both(name, 32, 2, arithmetic, **gossip))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_predicted_memory_is_measured_for_the_papers_batch(arithmetic):
    assert_equal(*both("resnet20", 32, 32, arithmetic))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("norm", ["batch", "group", "evonorm_s0", "range_evonorm", "range_batch"])
def test_predicted_memory_is_measured_with_every_norm(norm, arithmetic):
    assert_equal(*both("small_cnn", 16, 6, arithmetic, norm=norm))


@pytest.mark.parametrize("compressor", [Identity(values="fp32"), TOP_1_PERCENT])
def test_on_changing_graphs_copies_are_kept_of_all_peers_and_messages_made_for_one(compressor):
    changing = both(
        "small_cnn", 8, 1, "fp32", kind=Choco, compressor=compressor, degrees=(1, 1),
        num_met_before=14,
    )  # fmt: skip
    assert_equal(*changing)
    assert changing[0].gossip_state == 30 * changing[0].gradients


def test_where_early_layers_are_large_8_bits_peak_at_their_gradients():
    """Codes take a byte, but gradients between layers are fp32 as they are in fp32 models."""
    peak = {
        (name, side, arithmetic): peak_of_step(
            formulas(name, side, 8, arithmetic).layers, "reference"
        )
        for name, side in (("resnet20", 32), ("vgg11", 224))
        for arithmetic in ("fp32", "reference")
    }
    vgg, resnet = peak["vgg11", 224, "reference"], peak["resnet20", 32, "reference"]
    assert vgg["layer_gradients"] > 5 * vgg["activations"]
    # At the norm of the first convolution: 64 channels of 224 x 224 pixels in fp32, before and
    # after it.
    assert vgg["layer_gradients"] == 4 * 2 * 8 * 64 * 224 * 224 + 8 * 64 * 224 * 224
    assert resnet["layer_gradients"] < resnet["activations"] / 5
    assert peak["vgg11", 224, "fp32"]["layer_gradients"] < 1e7


@pytest.mark.parametrize(
    "change",
    [
        {"weight_gradient": "fp16"},
        {"weight_gradient": "int8"},
        {"weight_range": "per_out_channel"},
        {"zero_point": "float_offset"},
        {"ranges": "gossiped"},
        {"activation_rounding": "stochastic"},
    ],
    ids=lambda change: next(iter(change.values())),
)
def test_predicted_memory_is_measured_for_every_switch(change):
    settings = replace(SETTINGS, **change)
    assert_equal(*both("resnet20", 16, 2, "reference", settings=settings))


KINDS = [FixedGraphChoco, Choco, ChocoNumerator, DeepSqueeze, GradientPush, Dcd]
COMPRESSORS = [
    Identity(values="fp32"),
    Identity(values="fp16"),
    TopK(keep=0.1, values="int8"),
    QSGD(bits=3),
    QSGD(bits=3, bucket_size=64),
    SignScale(),
    MinMaxUInt8(),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_predicted_memory_is_measured_for_every_algorithm_and_compressor(kind, compressor):
    """One sample of 8x8 pixels: what matters are vectors and messages."""
    for degrees in ((2, 3), (0, 1), (1, 0)):
        options = {"kind": kind, "compressor": compressor, "degrees": degrees}
        assert_equal(*both("small_cnn", 8, 1, "fp32", **options))


@pytest.mark.parametrize(
    "make",
    [
        partial(BaguaLowPrecision, compressor=MinMaxUInt8(), bucket_bytes=10_000),
        partial(BaguaDecentralized, compressor=Identity(values="fp32")),
    ],
    ids=["low precision", "decentralized"],
)
def test_predicted_memory_is_measured_for_algorithms_of_bagua(make):
    """Device 0 of three, which sends to both others and takes from both."""
    model = flat_model("small_cnn", (3, 8, 8), make_layers("fp32", SETTINGS, None))
    measured = measure_device_memory(
        model=model,
        batch=batch_of((3, 8, 8), 1),
        optimizer=SGD,
        algorithm=make(layout=model.layout, num_devices=3),
        out_edges=[OutEdge(1, 1 / 3), OutEdge(2, 1 / 3)],
        in_weights={1: 1 / 3, 2: 1 / 3},
    )
    by_formula = formulas("small_cnn", 8, 1, "fp32", SETTINGS, None)
    algorithm = make(layout=ParameterLayout.from_shapes(by_formula.flat_shapes), num_devices=3)
    predicted = MemoryModel(
        model=by_formula,
        backend=None,
        optimizer=SGD,
        algorithm=for_device(algorithm, 0),
        out_degree=2,
        in_degree=2,
        message_bytes=measured.message_bytes,
    ).faithful()
    assert_equal(predicted, measured.at_peak)


def test_large_models_on_few_samples_peak_where_the_model_is_copied():
    """Sparse messages of DeepSqueeze need no vector of their own, x/u does."""
    predicted, measured = both("vgg11", 32, 1, "fp32", kind=DeepSqueeze)
    assert_equal(predicted, measured)
    assert predicted.master_copy == 2 * predicted.gradients


def test_quasi_global_momentum_holds_the_half_step_while_it_sends():
    options = {"optimizer": QuasiGlobalMomentum(momentum=0.9, nesterov=True, weight_decay=0.0)}
    with_half_step = both("small_cnn", 8, 1, "fp32", **options)
    assert_equal(*with_half_step)
    without = both("small_cnn", 8, 1, "fp32")[0]
    assert with_half_step[0].optimizer == 2 * without.optimizer


def test_the_papers_convention_gives_its_ratio():
    """reference.md, section 6: 53.5 and 14.9 MiB, 3.58x; P = 273,258, A = 412,746, batch 32."""
    tables = {a: paper_memory(formulas("resnet20", 32, 32, a)) for a in ("fp32", "int8")}
    assert tables["fp32"] == MemoryTable(
        weights=4 * 273_258,
        gradients=4 * 273_258,
        optimizer=4 * 273_258,
        activations=4 * 412_746 * 32,
    )
    assert tables["int8"].total == 9 * 273_258 + 412_746 * 32
    assert [round(t.total / 2**20, 1) for t in tables.values()] == [53.5, 14.9]
    assert round(tables["fp32"].total / tables["int8"].total, 2) == 3.58


def test_vectors_of_a_device_are_those_by_hand():
    """D = 24,458 for small_cnn on colour images; CHOCO on a fixed graph keeps two vectors."""
    in_fp32, in_int8 = both("small_cnn", 32, 4, "fp32")[0], both("small_cnn", 32, 4, "reference")[0]
    vector = 4 * 24_458
    for table, copies in ((in_fp32, 1), (in_int8, 2)):
        assert table.master_copy == copies * vector
        assert table.optimizer == vector
        assert table.gossip_state == 2 * vector
    assert in_fp32.weights == vector  # z; it has no statistics
    # In 8 bits each of 3 convolutions, 3 norms and the linear layer has a running range, twice.
    assert in_int8.weights >= 2 * 4 * 2 * 7


def test_statistics_of_batch_norm_are_held_twice_and_counters_of_batches_once():
    """Mean and variance, in floats, of the model and of the device; three norms count batches."""
    model = flat_model("small_cnn", (3, 32, 32), fp32("batch"))
    table = both("small_cnn", 32, 4, "fp32", norm="batch")[0]
    statistics = model.buffers.numel()
    assert statistics > 0
    assert table.weights == 4 * model.parameters.numel() + 2 * 4 * statistics + 8 * 3


def peaks_of_step(module, images_shape):
    """Bytes at the peak of a step by component, predicted and measured; without the vectors."""
    model = FlatModel(module)
    images, labels = batch_of(images_shape[1:], images_shape[0])
    meter = WorkMeter(model)
    with meter.watch(images_shape):
        model.loss_and_gradient(images, labels)
    predicted = peak_of_step([w.layer for w in meter.work(images_shape).layers], "reference")
    ledger = StorageLedger()
    ledger.see([model.parameters, model.buffers], "optimizer")
    ledger.see([images, labels], "activations")
    with watch_step(model, ledger):
        model.loss_and_gradient(images, labels)
    of_step = {c: held for c, held in ledger.at_peak.items() if c != "optimizer"}
    return {c: held for c, held in predicted.items() if held}, of_step


def test_a_linear_classifier_peaks_at_its_weight_gradient():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    predicted, measured = peaks_of_step(module, (4, 3, 2, 2))
    # Images, labels and logits, whose gradient has come; then 12 x 5 weights' and 5 biases'.
    by_hand = {
        "activations": 4 * 4 * 12 + 8 * 4 + 4 * 4 * 5,
        "layer_gradients": 4 * 4 * 5,
        "gradients": 4 * (12 * 5 + 5),
    }
    assert predicted == measured == by_hand


def test_a_wide_head_does_not_find_the_copy_of_the_images_any_more():
    """8 images of 3 x 16 x 16 pixels, features of 8 x 4 x 4, 200 classes.

    In 8 bits nobody but the frame of the features holds the copy while the convolution's codes are
    kept. So this peaks in the norm, with the copy, and not in the head with its logits.
    """
    layers = int8()
    features = nn.Sequential(layers.conv(3, 8, 3, stride=4), layers.norm_act(8))
    module = ImageClassifier(features, layers.linear(8, 200))
    predicted, measured = peaks_of_step(module, (8, 3, 16, 16))
    assert predicted == measured
    images, features = 8 * 3 * 256, 8 * 8 * 16
    scales, places = 2 * 4 * 64, 2 * 8 * 64  # of 64 groups: a scale twice; extremes of 8 chunks
    in_the_norm = 4 * 2 * images + images + 4 * 2 * features + features + scales + places
    assert measured["activations"] == in_the_norm + 8 * 8  # labels


def test_gradients_of_both_branches_wait_where_they_were_added():
    """A convolution that halves the image stands before the block: it has the peak of the step."""
    layers = fp32()
    stem = [layers.conv(3, 16, 3), layers.conv(16, 8, 3, stride=2)]
    features = nn.Sequential(*stem, BasicBlock(layers, 8, 8, 1))
    module = ImageClassifier(features, layers.linear(8, 10))
    predicted, measured = peaks_of_step(module, (4, 3, 16, 16))
    assert predicted == measured
    at_output, at_input = 4 * 8 * 64, 4 * 16 * 256
    assert measured["layer_gradients"] == 4 * (at_output + at_input)


class _EveryOperation(TorchDispatchMode):
    """Shows a ledger the result of every operation of torch."""

    def __init__(self, ledger):
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.ledger.see(result, "activations")
        return result


@pytest.mark.parametrize("arithmetic", ["fp32", "int8_cpu"])
def test_scratch_memory_that_is_not_counted_is_little(arithmetic):
    """Where kernels are fused, all that torch allocates in a step is what is counted, to 2 %."""
    peaks = []
    for counts_scratch in (False, True):
        model = flat_model("resnet20", (3, 32, 32), make_layers(arithmetic))
        images, labels = batch_of((3, 32, 32), 4)
        ledger = StorageLedger()
        ledger.see([model.parameters, model.gradient, images, labels], "weights")
        scratch = _EveryOperation(ledger) if counts_scratch else contextlib.nullcontext()
        with watch_step(model, ledger), scratch:
            model.loss_and_gradient(images, labels)
        peaks.append(sum(ledger.at_peak.values()))
    assert peaks[0] <= peaks[1] <= 1.02 * peaks[0]


def test_watching_leaves_the_step_and_the_model_as_they_are():
    images, labels = batch_of((3, 16, 16), 3)
    plain, hooked = (flat_model("resnet20", (3, 16, 16), int8()) for _ in range(2))
    loss, gradient = plain.loss_and_gradient(images, labels)
    with watch_step(hooked, StorageLedger()):
        watched_loss, watched_gradient = hooked.loss_and_gradient(images, labels)
    assert loss == watched_loss
    assert torch.equal(gradient, watched_gradient)
    for module in hooked.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        if hasattr(module, "arithmetic"):
            assert module.arithmetic.name == "reference"
            assert type(module.arithmetic).__name__ == "Reference"


def test_a_layout_of_another_model_is_refused():
    layout = ParameterLayout.from_shapes([(3,)])
    with pytest.raises(CostError, match="other shapes"):
        MemoryModel(
            model=formulas("small_cnn", 8, 1, "fp32"),
            backend="reference",
            optimizer=SGD,
            algorithm=make_algorithm(DeepSqueeze, TOP_1_PERCENT, layout),
            out_degree=1,
            in_degree=1,
            message_bytes=100,
        )
