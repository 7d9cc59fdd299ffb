"""What edgesim ships: for each kind of part its names, each with the place of its code.

A new part is one file with its formulas and one entry here. A reference is `module:Name`. Its
module is imported when the part is first asked for, so a scenario is read without torch. The first
line of a part's docstring describes it in `edgesim list`. Parts whose modules import torch are
described here too, so that they are listed without it. A scenario gives the keyword arguments of
`Name` under `options`, as to one's own parts; parts whose keys have a section of the schema take
them from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple


class Shipped(NamedTuple):
    """Where the code of a part is, and what it is.

    Attributes:
        reference: `module:Name`.
        description: one line for people; empty if the module is imported to find it.
    """

    reference: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Catalog(Mapping[str, Any]):
    """The shipped parts of one kind: what each reference stands for, by name.

    Attributes:
        kind: what they are, in the plural.
        parts: references and descriptions by name.
        group: of the entry points by which packages announce further names; empty if none may.
        given: keyword arguments that edgesim gives to a part of this kind. All others are options
            of a scenario. None where a reference is not called, and there are no options.
    """

    kind: str
    parts: dict[str, Shipped]
    group: str = ""
    given: frozenset[str] | None = None

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 (whatever the name stands for)
        module, _, attribute = self.parts[name].reference.partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __hash__(self) -> int:
        return hash(self.kind)  # annotations of the schema hold catalogs

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def description(self, name: str) -> str:
        """One line for people."""
        if described := self.parts[name].description:
            return described
        part = self[name]
        line = getattr(part, "description", None) or (getdoc(part) or "").partition("\n")[0]
        return str(line).removesuffix(".")


ALGORITHMS = Catalog(
    "algorithms",
    {
        "choco": Shipped(
            "edgesim.gossip.choco:Choco",
            "CHOCO-SGD with push-sum: compressed differences of models to public copies",
        ),
        "choco_numerator": Shipped(
            "edgesim.gossip.choco_numerator:ChocoNumerator",
            "CHOCO-SGD as published: differences of x = u z, not of the model",
        ),
        "deepsqueeze": Shipped(
            "edgesim.gossip.deep_squeeze:DeepSqueeze",
            "DeepSqueeze / Sparse-Push: compressed models with error feedback",
        ),
        "gradient_push": Shipped(
            "edgesim.gossip.gradient_push:GradientPush",
            "SGP on directed graphs, D-PSGD on regular ones: uncompressed models",
        ),
        "dcd": Shipped(
            "edgesim.gossip.dcd:Dcd",
            "Bagua's low-precision decentralized SGD: weights on the compressed path",
        ),
        "all_reduce": Shipped(
            "edgesim.gossip.all_reduce:AllReduce",
            "All-reduce SGD: after each step the exact average, in 2 (n - 1) exchanges of "
            "D / n entries",
        ),
        "fedavg": Shipped(
            "edgesim.gossip.fed_avg:FedAvg",
            "FedAvg: device 0 is the server, and trains on its own data like the others",
        ),
        "choco_iclr": Shipped(
            "edgesim.gossip.choco_iclr:ChocoIclr",
            "CHOCO-SGD in the order of its authors' code of 2020: old public copies are mixed",
        ),
        "d2": Shipped(
            "edgesim.gossip.d2:D2",
            "D2: each device corrects its next model by what gossip changed in the last",
        ),
        "gradient_tracking": Shipped(
            "edgesim.gossip.gradient_tracking:GradientTracking",
            "Gradient tracking: two vectors a message, the corrected model and the corrected step",
        ),
        "beer": Shipped(
            "edgesim.gossip.beer:Beer",
            "BEER: gradient tracking that sends compressed differences of model and tracker",
        ),
        "momentum_tracking": Shipped(
            "edgesim.gossip.momentum_tracking:MomentumTracking",
            "Momentum Tracking: two vectors a message, the model and the corrected momentum",
        ),
        "gut": Shipped(
            "edgesim.gossip.global_update_tracking:GlobalUpdateTracking",
            "Global Update Tracking: neighbours' updates from the models that they send anyway",
        ),
        "relay_sgd": Shipped(
            "edgesim.gossip.relay_sgd:RelaySgd",
            "RelaySGD: on a tree, the exact average of models that are as old as their way is long",
        ),
        "bagua_low_precision": Shipped(
            "edgesim.gossip.bagua_low_precision:BaguaLowPrecision",
            "Bagua's low-precision decentralized SGD: DCD on a ring in 8 bits, buckets, sites",
        ),
        "bagua_decentralized": Shipped(
            "edgesim.gossip.bagua_decentralized:BaguaDecentralized",
            "Bagua's decentralized SGD in fp32: all average, or each with one other in turn; sites",
        ),
    },
    "edgesim.algorithms",
    frozenset({"compressor", "layout", "averaging_rate", "num_devices"}),
)

COMPRESSORS = Catalog(
    "compressors",
    {
        "identity": Shipped(
            "edgesim.compression.compressors:Identity",
            "Sends every entry, rounded to the value format",
        ),
        "top_k": Shipped(
            "edgesim.compression.compressors:TopK",
            "The k entries of largest magnitude of each tensor; of equal ones the first",
        ),
        "random_k": Shipped(
            "edgesim.compression.compressors:RandomK",
            "k entries of each tensor, every set of k equally likely, drawn anew for each vector",
        ),
        "qsgd": Shipped(
            "edgesim.compression.compressors:QSGD",
            "Stochastic levels of each tensor's norm (arXiv 1610.02132; reference.md, section 3.6)",
        ),
        "min_max_uint8": Shipped(
            "edgesim.compression.compressors:MinMaxUInt8",
            "Every entry as one of 256 levels between its tensor's minimum and maximum (Bagua)",
        ),
        "sign_scale": Shipped(
            "edgesim.compression.compressors:SignScale",
            "Sign of every entry times the mean magnitude of its tensor (arXiv 1901.09847, "
            "EF-signSGD)",
        ),
    },
    "edgesim.compressors",
    frozenset(),
)

OPTIMIZERS = Catalog(
    "optimizers",
    {
        "sgd": Shipped(
            "edgesim.learning.optimizers:sgd",
            "Stochastic gradient descent with momentum, of own gradients or quasi-global",
        ),
        "adam": Shipped(
            "edgesim.learning.adam:Adam",
            "Adam with moments of the device's own gradients, equal to torch.optim.Adam or "
            "AdamW on x",
        ),
        "quasi_global_adam": Shipped(
            "edgesim.learning.adam:QuasiGlobalAdam",
            "Adam whose moments follow the movement that gossip produced (QG-DAdam)",
        ),
    },
    "edgesim.optimizers",
    frozenset(),
)

SCHEDULES = Catalog(
    "schedules",
    {
        "steps": Shipped(
            "edgesim.learning.optimizers:LearningRateSchedule",
            "Rates that fall at milestones, with a reduced rate in the first epochs",
        ),
    },
    "edgesim.schedules",
    frozenset({"base"}),
)

PARTITIONS = Catalog(
    "partitions",
    {
        "label_skew": Shipped("edgesim.data.partition:label_skew"),
        "dirichlet": Shipped("edgesim.data.partition:dirichlet"),
        "iid": Shipped("edgesim.data.partition:iid"),
        "by_owner": Shipped("edgesim.data.natural:by_owner"),
        "file": Shipped("edgesim.data.natural:by_file"),
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
            "device_names",
            "rng",
            "seed",
        }
    ),
)

TASKS = Catalog(
    "tasks",
    {
        "classification": Shipped(
            "edgesim.learning.tasks:Classification",
            "Each sample has a class: cross-entropy of outputs (N, K) at classes (N,), in nats",
        ),
        "regression": Shipped(
            "edgesim.learning.tasks:Regression",
            "Each sample has K numbers: mean squared error of outputs (N, K) at targets (N, "
            "K) or (N,)",
        ),
        "next_token": Shipped(
            "edgesim.learning.tasks:NextToken",
            "The next token at each position of a sequence: outputs (N, T, K), targets (N, T)",
        ),
    },
    "edgesim.tasks",
    frozenset(),
)

TOPOLOGIES = Catalog(
    "topologies",
    {},  # those that are shipped have sections of their own, and stand in topologies/catalog.py
    "edgesim.topologies",
    frozenset({"num_devices", "device_names", "rng", "seed"}),
)

# Of a `ModelKind` each, built from layers that are fp32 or 8-bit. Parameter counts are those for 3
# channels, 10 classes and norm evonorm_s0 (reference.md, section 5).
MODELS = Catalog(
    "models",
    {
        "resnet20": Shipped(
            "edgesim.models.resnet:RESNET20",
            "ResNet-20 for small images: 273,258 parameters, 40.8 M MAC at 32x32",
        ),
        "resnet54": Shipped(
            "edgesim.models.resnet:RESNET54",
            'the paper\'s "ResNet-54", in truth 50 layers: 760,458 parameters',
        ),
        "resnet18": Shipped(
            "edgesim.models.resnet:RESNET18",
            "ResNet-18 for large images: 11,186,442 parameters",
        ),
        "vgg11": Shipped(
            "edgesim.models.vgg:VGG11",
            "VGG-11 with norms, dropout and a 512-wide head: 9,496,522 parameters",
        ),
        "mobilenet_v2": Shipped(
            "edgesim.models.mobilenet:MOBILENET_V2",
            "MobileNetV2, layout for large images from 96 pixels: 2,314,466 parameters below",
        ),
        "small_cnn": Shipped(
            "edgesim.models.small_cnn:SMALL_CNN",
            "three convolutions: 24,458 parameters, 2.8 M MAC at 32x32",
        ),
        "resnet": Shipped(
            "edgesim.models.resnet:RESNET",
            "ResNet of any depth and width, by default as resnet20: 273,258 parameters",
        ),
    },
)

# Of a torch.nn.Module each, treated as one's own: converted to 8 bits, and measured.
MODULES = Catalog(
    "models",
    {
        "distilbert": Shipped(
            "edgesim.models.text.encoder:distilbert",
            "DistilBERT with random weights, of any size; the defaults are those of "
            "distilbert-base",
        ),
        "encoder": Shipped(
            "edgesim.models.text.encoder:encoder",
            "Any encoder of the Hugging Face hub, with a new head for the classes",
        ),
        "mlp": Shipped(
            "edgesim.models.mlp:mlp",
            "Multilayer perceptron: linear layers with ReLU between them, for tables and vectors",
        ),
    },
    "edgesim.models",
    frozenset({"input_shape", "num_classes"}),
)

# Of a `NormKind` each.
NORMS = Catalog(
    "norms",
    {
        "batch": Shipped(
            "edgesim.models.norms:BATCH",
            "batch normalisation, then ReLU; its running statistics stay on the device",
        ),
        "group": Shipped(
            "edgesim.models.norms:GROUP",
            "group normalisation over 2 groups of channels, then ReLU",
        ),
        "evonorm_s0": Shipped(
            "edgesim.models.evonorm:EVONORM_S0",
            "EvoNorm-S0 over 8 groups of channels: norm and nonlinearity in one",
        ),
        "range_evonorm": Shipped(
            "edgesim.models.range_norms:RANGE_EVONORM",
            "EvoNorm by ranges instead of deviations, the paper's in 8 bits",
        ),
        "range_batch": Shipped(
            "edgesim.models.range_norms:RANGE_BATCH",
            "batch normalisation by ranges, then ReLU; its statistics stay on the device",
        ),
    },
)

# Of a `Source` of images each.
SOURCES = Catalog(
    "datasets",
    {
        "digits": Shipped("edgesim.data.digits:DIGITS"),
        "cifar10": Shipped("edgesim.data.cifar:CIFAR10"),
        "cifar100": Shipped("edgesim.data.cifar:CIFAR100"),
        "fashion_mnist": Shipped("edgesim.data.fashion_mnist:FASHION_MNIST"),
        "imagenette": Shipped("edgesim.data.imagenette:IMAGENETTE"),
        "image_folder": Shipped("edgesim.data.image_folder:IMAGE_FOLDER"),
        "parquet": Shipped("edgesim.data.parquet.parquet:PARQUET"),
    },
)

# Of a class each that gives arrays, treated as one's own.
ARRAYS = Catalog(
    "datasets",
    {
        "ag_news": Shipped("edgesim.data.text.ag_news:AgNews"),
        "sent_len": Shipped("edgesim.data.text.sent_len:SentLen"),
        "femnist": Shipped("edgesim.data.leaf:femnist"),
        "shakespeare": Shipped("edgesim.data.leaf:shakespeare"),
        "table": Shipped("edgesim.data.table:Table"),
    },
    "edgesim.datasets",
    frozenset({"path"}),
)
