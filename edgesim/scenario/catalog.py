"""What edgesim ships: for each kind of part its names, each with the place of its code.

A new part is one file with its formulas and one line here. A reference is `module:Name`; the module
is imported when the part is first asked for, so a scenario is read without torch. The first line of
a part's docstring describes it in `edgesim list`. A scenario gives the keyword arguments of `Name`
under `options`, as to one's own parts; parts whose keys have a section of the schema take them from
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import getdoc
from typing import Any


@dataclass(frozen=True, slots=True)
class Catalog(Mapping[str, Any]):
    """The shipped parts of one kind: what a reference stands for, by name.

    Attributes:
        kind: what they are, in the plural.
        references: `module:Name` by name.
        group: of the entry points by which packages announce further names; empty if none may.
        given: keyword arguments that edgesim gives to a part of this kind. All others are options
            of a scenario. None where a reference is not called, and there are no options.
    """

    kind: str
    references: dict[str, str]
    group: str = ""
    given: frozenset[str] | None = None

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
        module, _, attribute = self.references[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.references)

    def __len__(self) -> int:
        return len(self.references)

    def __hash__(self) -> int:
        return hash(self.kind)  # annotations of the schema hold catalogs

    def __contains__(self, name: object) -> bool:
        return name in self.references

    def description(self, name: str) -> str:
        """One line for people."""
        part = self[name]
        line = getattr(part, "description", None) or (getdoc(part) or "").partition("\n")[0]
        return str(line).removesuffix(".")


ALGORITHMS = Catalog(
    "algorithms",
    {
        "choco": "edgesim.gossip.choco:Choco",
        "choco_numerator": "edgesim.gossip.choco_numerator:ChocoNumerator",
        "deepsqueeze": "edgesim.gossip.deep_squeeze:DeepSqueeze",
        "gradient_push": "edgesim.gossip.gradient_push:GradientPush",
        "dcd": "edgesim.gossip.dcd:Dcd",
        "all_reduce": "edgesim.gossip.all_reduce:AllReduce",
        "fedavg": "edgesim.gossip.fed_avg:FedAvg",
        "choco_iclr": "edgesim.gossip.choco_iclr:ChocoIclr",
        "d2": "edgesim.gossip.d2:D2",
        "gradient_tracking": "edgesim.gossip.gradient_tracking:GradientTracking",
        "momentum_tracking": "edgesim.gossip.momentum_tracking:MomentumTracking",
        "gut": "edgesim.gossip.global_update_tracking:GlobalUpdateTracking",
        "relay_sgd": "edgesim.gossip.relay_sgd:RelaySgd",
        "bagua_low_precision": "edgesim.gossip.bagua_low_precision:BaguaLowPrecision",
        "bagua_decentralized": "edgesim.gossip.bagua_decentralized:BaguaDecentralized",
    },
    "edgesim.algorithms",
    frozenset({"compressor", "layout", "averaging_rate", "num_devices"}),
)

COMPRESSORS = Catalog(
    "compressors",
    {
        "identity": "edgesim.compression.compressors:Identity",
        "top_k": "edgesim.compression.compressors:TopK",
        "random_k": "edgesim.compression.compressors:RandomK",
        "qsgd": "edgesim.compression.compressors:QSGD",
        "min_max_uint8": "edgesim.compression.compressors:MinMaxUInt8",
        "sign_scale": "edgesim.compression.compressors:SignScale",
    },
    "edgesim.compressors",
    frozenset(),
)

OPTIMIZERS = Catalog(
    "optimizers",
    {
        "sgd": "edgesim.learning.optimizers:sgd",
        "adam": "edgesim.learning.adam:Adam",
        "quasi_global_adam": "edgesim.learning.adam:QuasiGlobalAdam",
    },
    "edgesim.optimizers",
    frozenset(),
)

SCHEDULES = Catalog(
    "schedules",
    {
        "steps": "edgesim.learning.optimizers:LearningRateSchedule",
    },
    "edgesim.schedules",
    frozenset({"base"}),
)

PARTITIONS = Catalog(
    "partitions",
    {
        "label_skew": "edgesim.data.partition:label_skew",
        "dirichlet": "edgesim.data.partition:dirichlet",
        "iid": "edgesim.data.partition:iid",
        "by_owner": "edgesim.data.natural:by_owner",
        "file": "edgesim.data.natural:by_file",
    },
    "edgesim.partitions",
    frozenset(
        {
            "labels",
            "classes",
            "column_of",
            "test_labels",
            "test_column_of",
            "num_samples",
            "num_devices",
            "rng",
            "seed",
        }
    ),
)

TASKS = Catalog(
    "tasks",
    {
        "classification": "edgesim.learning.tasks:Classification",
        "regression": "edgesim.learning.tasks:Regression",
        "next_token": "edgesim.learning.tasks:NextToken",
    },
    "edgesim.tasks",
    frozenset(),
)

# Of a `ModelKind` each, built from layers that are fp32 or 8-bit.
MODELS = Catalog(
    "models",
    {
        "resnet20": "edgesim.models.resnet:RESNET20",
        "resnet54": "edgesim.models.resnet:RESNET54",
        "resnet18": "edgesim.models.resnet:RESNET18",
        "vgg11": "edgesim.models.vgg:VGG11",
        "mobilenet_v2": "edgesim.models.mobilenet:MOBILENET_V2",
        "small_cnn": "edgesim.models.small_cnn:SMALL_CNN",
        "resnet": "edgesim.models.resnet:RESNET",
    },
)

# Of a torch.nn.Module each, treated as one's own: converted to 8 bits, and measured.
MODULES = Catalog(
    "models",
    {
        "distilbert": "edgesim.models.text.encoder:distilbert",
        "encoder": "edgesim.models.text.encoder:encoder",
    },
    "edgesim.models",
    frozenset({"input_shape", "num_classes"}),
)

# Of a `NormKind` each.
NORMS = Catalog(
    "norms",
    {
        "batch": "edgesim.models.norms:BATCH",
        "group": "edgesim.models.norms:GROUP",
        "evonorm_s0": "edgesim.models.evonorm:EVONORM_S0",
        "range_evonorm": "edgesim.models.range_norms:RANGE_EVONORM",
        "range_batch": "edgesim.models.range_norms:RANGE_BATCH",
    },
)

# Of a `Source` of images each.
SOURCES = Catalog(
    "datasets",
    {
        "digits": "edgesim.data.digits:DIGITS",
        "cifar10": "edgesim.data.cifar:CIFAR10",
        "cifar100": "edgesim.data.cifar:CIFAR100",
        "fashion_mnist": "edgesim.data.fashion_mnist:FASHION_MNIST",
        "imagenette": "edgesim.data.imagenette:IMAGENETTE",
        "image_folder": "edgesim.data.image_folder:IMAGE_FOLDER",
        "parquet": "edgesim.data.parquet:PARQUET",
    },
)

# Of a class each that gives arrays, treated as one's own.
ARRAYS = Catalog(
    "datasets",
    {
        "ag_news": "edgesim.data.text.ag_news:AgNews",
        "sent_len": "edgesim.data.text.sent_len:SentLen",
        "femnist": "edgesim.data.leaf:femnist",
        "shakespeare": "edgesim.data.leaf:shakespeare",
    },
    "edgesim.datasets",
    frozenset({"path"}),
)
