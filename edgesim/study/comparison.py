"""A model in fp32 against the same model in 8 bits: the paper's Fig. 3 and further costs.

As in the paper, fp32 has the norm EvoNorm-S0 and 8 bits have Range EvoNorm. Every algorithm is
compared at 0, 90 and 99 % compression, with values of the model's precision. Gradient push sends
all entries in fp32 with both models, since it has no error feedback. All costs follow from formulas
(`edgesim.costs`) and from encoded messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from edgesim.assembly.build import quantization_settings
from edgesim.assembly.gossip import algorithm_named, exchanges_of
from edgesim.assembly.message_costs import MessageCosts, NoiseMessages
from edgesim.assembly.studied_scenario import StudiedScenario, device_backend
from edgesim.compression.compressors import Compressor, Identity, TopK
from edgesim.costs.closed_form import ClosedForm, closed_form
from edgesim.costs.memory import MemoryModel, paper_memory
from edgesim.costs.memory_table import MemoryTable
from edgesim.costs.model_form import ModelForm
from edgesim.costs.round_work import gossip_work
from edgesim.gossip.algorithm import Algorithm, Form
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.gradient_push import GradientPush
from edgesim.gossip.optional_members import form_for, message_layouts
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import Optimizer, Sgd
from edgesim.learning.parameters import ParameterLayout
from edgesim.quant.settings import QuantizationSettings, WeightGradient
from edgesim.study.energy_costs import SiliconEnergy, silicon_energy
from edgesim.study.own_gossip import OwnGossip
from topologies import first_exchange

Precision = Literal["fp32", "int8"]
Compression = Literal["0 %", "90 %", "99 %"]
AlgorithmName = Literal["choco", "deepsqueeze", "gradient_push", "dcd"]

COMPRESSIONS: dict[Compression, float] = {"0 %": 1.0, "90 %": 0.1, "99 %": 0.01}
"""Share of each tensor that is sent."""

WEIGHT_GRADIENTS: tuple[WeightGradient, ...] = ("int8", "fp16", "fp32")
_NORMS: dict[Precision, str] = {"fp32": "evonorm_s0", "int8": "range_evonorm"}
_RATE = 1.0  # averaging rate; no cost depends on it
_OTHERS: dict[AlgorithmName, Form] = {
    "deepsqueeze": partial(DeepSqueeze, averaging_rate=_RATE),
    "gradient_push": partial(GradientPush, averaging_rate=_RATE),
    "dcd": Dcd,
}

# reference.md, section 5; the common optimizer of the paper's experiments.
PAPER_OPTIMIZER = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)
PAPER_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Properties that both sides of a comparison share.

    Attributes:
        name: of the model.
        image_shape: channels, height and width.
        num_classes: labels.
        batch_size: samples of a step.
        settings: of 8-bit arithmetic; the rows on gossip use its weight gradient.
        optimizer: of the device.
        out_degree: messages that the device sends in a round with an exchange.
        in_degree: messages that the device absorbs in such a round.
        choco: the form of CHOCO.
        own: algorithm and compressor of a scenario; None for the paper's alone.
        depth: layers of a ResNet of free size.
        width: channels of its first stage.
    """

    name: str
    image_shape: tuple[int, ...]
    num_classes: int
    batch_size: int
    settings: QuantizationSettings
    optimizer: Optimizer
    out_degree: int
    in_degree: int
    choco: Form
    own: OwnGossip | None = None
    depth: int = 20
    width: int = 16

    def form(
        self, precision: Precision, weight_gradient: WeightGradient | None = None
    ) -> ModelForm:
        """The model in one arithmetic."""
        settings = None if precision == "fp32" else self.settings
        if settings is not None and weight_gradient is not None:
            settings = replace(settings, weight_gradient=weight_gradient)
        return ModelForm(
            name=self.name,
            image_shape=self.image_shape,
            num_classes=self.num_classes,
            norm=_NORMS[precision],
            settings=settings,
            depth=self.depth,
            width=self.width,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One device's costs by one algorithm, compression and precision.

    Attributes:
        message: bytes of a message that it sends.
        work: work of an iteration.
        gossip: the part of `work` for gossip.
        memory: memory at the peak of a round.
        energy: of an iteration by table, sums of 8-bit products as in the paper, traffic with DRAM.
    """

    message: MessageCosts
    work: Work
    gossip: Work
    memory: MemoryTable
    energy: Mapping[str, SiliconEnergy]


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipRow:
    """fp32 against 8 bits by one algorithm and compression.

    Attributes:
        algorithm: name of the algorithm.
        compression: one of `COMPRESSIONS`; of a scenario what of a vector is sent, in words.
        fp32: costs in fp32.
        int8: costs in 8 bits.
    """

    algorithm: str
    compression: str
    fp32: Side
    int8: Side

    @property
    def label(self) -> str:
        """Algorithm and compression."""
        return f"{self.algorithm}, {self.compression}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionComparison:
    """fp32 against 8 bits.

    Attributes:
        setting: what both have in common.
        fp32: counts of the model in fp32.
        int8: counts in 8 bits, by the precision of the weight gradient.
        fp32_memory: of a training step by the paper's convention.
        int8_memory: the same in 8 bits.
        rows: by algorithm and compression.
        own: by those of the scenario; CHOCO at 99 % compression where there is none.
    """

    setting: Setting
    fp32: ClosedForm
    int8: Mapping[WeightGradient, ClosedForm]
    fp32_memory: MemoryTable
    int8_memory: MemoryTable
    rows: tuple[GossipRow, ...]
    own: GossipRow

    def row(self, algorithm: str, compression: str) -> GossipRow:
        """One of the rows."""
        wanted = algorithm, compression
        return next(row for row in self.rows if (row.algorithm, row.compression) == wanted)


def setting_of(studied: StudiedScenario) -> Setting:
    """The shared properties of a scenario's comparison: all except precision, norm and gossip."""
    schedule, form = studied.schedule, studied.model.form
    first = first_exchange(schedule)
    degrees = [
        (len(schedule.out_edges(device, first)), len(schedule.in_neighbors(device, first)))
        for device in range(schedule.num_devices)
    ]
    out_degree, in_degree = max(degrees, key=sum)
    choco = Choco if algorithm_named(studied.scenario) is not ChocoNumerator else ChocoNumerator
    return Setting(
        name=form.name,
        image_shape=form.image_shape,
        num_classes=form.num_classes,
        batch_size=studied.model.batch_size,
        settings=form.settings or quantization_settings(),
        optimizer=studied.optimizer,
        out_degree=out_degree,
        in_degree=in_degree,
        choco=form_for(choco, exchanges_of(studied.scenario, schedule)),
        own=OwnGossip(studied.scenario, schedule),
        depth=form.depth,
        width=form.width,
    )


def compare_precisions(
    setting: Setting, messages: NoiseMessages | None = None
) -> PrecisionComparison:
    """fp32 against 8 bits in one setting.

    Args:
    setting: shared properties.
    messages: cache of encoded messages.
    """
    messages = messages or NoiseMessages()
    fp32 = closed_form(setting.form("fp32"), setting.batch_size)
    int8 = {
        kind: closed_form(setting.form("int8", kind), setting.batch_size)
        for kind in WEIGHT_GRADIENTS
    }
    own = closed_form(setting.form("int8"), setting.batch_size)
    sides = {
        "fp32": _sides(setting, fp32, "fp32", messages),
        "int8": _sides(setting, own, "int8", messages),
    }
    rows = tuple(
        GossipRow(algorithm=a, compression=c, fp32=sides["fp32"][a, c], int8=sides["int8"][a, c])
        for a, c in sides["fp32"]
    )
    return PrecisionComparison(
        setting=setting,
        fp32=fp32,
        int8=int8,
        fp32_memory=paper_memory(fp32),
        int8_memory=paper_memory(own),
        rows=rows,
        own=_own_row(setting, {"fp32": fp32, "int8": own}, messages, rows),
    )


def _own_row(
    setting: Setting,
    models: Mapping[Precision, ClosedForm],
    messages: NoiseMessages,
    rows: tuple[GossipRow, ...],
) -> GossipRow:
    """The row of the scenario's gossip."""
    if setting.own is None:
        row = next(row for row in rows if (row.algorithm, row.compression) == ("choco", "99 %"))
        return replace(row, compression="top 1 %")
    sides, name = {}, ""
    for precision, model in models.items():
        layout = ParameterLayout.from_shapes(model.flat_shapes)
        algorithm = setting.own.algorithm(precision, layout)
        name = algorithm.name
        longest = message_layouts(algorithm)[0]
        message = messages.costs(algorithm.compressor, longest, [name])[name]
        step = model.step_work.total + setting.optimizer.work(model.num_trainable)
        sides[precision] = _side(setting, model, algorithm, message, step)
    return GossipRow(
        algorithm=name,
        compression=setting.own.compression,
        fp32=sides["fp32"],
        int8=sides["int8"],
    )


def _sides(
    setting: Setting, model: ClosedForm, precision: Precision, messages: NoiseMessages
) -> dict[tuple[AlgorithmName, Compression], Side]:
    """All algorithms and compressions of one precision."""
    layout = ParameterLayout.from_shapes(model.flat_shapes)
    step = model.step_work.total + setting.optimizer.work(model.num_trainable)
    sides = {}
    for compression, keep in COMPRESSIONS.items():
        compressor: Compressor = (
            Identity(values=precision) if keep == 1.0 else TopK(keep=keep, values=precision)
        )
        for name in get_args(AlgorithmName):
            own = compressor
            if name == "gradient_push":
                if keep != 1.0:
                    continue
                own = Identity(values="fp32")
            message = messages.costs(own, layout, [name])[name]
            sides[name, compression] = _side(
                setting, model, _make(setting, name, own, layout), message, step
            )
    return sides


def _side(
    setting: Setting,
    model: ClosedForm,
    algorithm: Algorithm[Any],
    message: MessageCosts,
    step: Work,
) -> Side:
    degrees = setting.out_degree, setting.in_degree
    gossip = gossip_work(algorithm, *degrees)
    work = step + gossip
    memory = MemoryModel(
        model=model,
        backend=device_backend(model.form.settings),
        optimizer=setting.optimizer,
        algorithm=algorithm,
        out_degree=setting.out_degree,
        in_degree=setting.in_degree,
        message_bytes=message.encoded.total,
    )
    return Side(
        message=message,
        work=work,
        gossip=gossip,
        memory=memory.faithful(),
        energy={name: silicon_energy(work, table) for name, table in ENERGY_TABLES.items()},
    )


def _make(
    setting: Setting, name: AlgorithmName, compressor: Compressor, layout: ParameterLayout
) -> Algorithm[Any]:
    """Make an algorithm; DCD on one-way links gets the costs of as many two-way links."""
    choco = partial(setting.choco, averaging_rate=_RATE)
    return _OTHERS.get(name, choco)(compressor=compressor, layout=layout)
