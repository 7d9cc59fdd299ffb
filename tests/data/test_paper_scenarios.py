"""scenarios/paper: settings and targets are those of reference.md, section 5; all can be run."""

from __future__ import annotations

import re
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from data_files import encode, random_images, write_folders, write_parquet
from rich.console import Console
from small_texts import write_ag_news
from thorough import some

from edgesim.assembly.build import choose_compute, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.data.batches import BatchStream
from edgesim.data.imagenette import CLASS_NAME_BY_WORDNET_ID
from edgesim.fleet.run import run_scenario
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario import load_scenario
from edgesim.scenario.sweep import parse_sweep

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scenarios" / "paper"
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
TABLES = ("2a", "2b", "2c", "2d", "3", "4a", "4b")
FILES = [f"table{table}_{precision}" for table in TABLES for precision in ("fp32", "int8")]

# reference.md, section 5: model, graph, devices, epochs, lr, milestones, factor, skews, averaging
# rate where messages are compressed
HALVED = (30, 60, 90, 120, 150, 180)
CIFAR_SKEWS, IMAGENETTE_SKEWS = (0, 0.4, 0.8, 0.9), (0, 0.6)
SETTINGS = {
    "2a": ("resnet20", "directed_ring", 8, 200, 0.1, (100, 150), 0.1, CIFAR_SKEWS, 99),
    "2b": ("resnet20", "directed_ring", 16, 200, 0.1, (100, 150), 0.1, CIFAR_SKEWS, 90),
    "2c": ("resnet54", "directed_ring", 8, 200, 0.1, (100, 150), 0.1, CIFAR_SKEWS, 99),
    "2d": ("vgg11", "torus", 16, 200, 0.1, HALVED, 0.5, CIFAR_SKEWS, 99),
    "3": ("resnet20", "directed_ring", 8, 200, 0.1, (100, 150), 0.1, CIFAR_SKEWS, 99),
    "4a": ("resnet18", "torus", 8, 100, 0.1, (50, 75), 0.1, IMAGENETTE_SKEWS, 90),
    "4b": ("vgg11", "directed_ring", 4, 100, 0.01, (30, 60, 90), 0.5, IMAGENETTE_SKEWS, 90),
}
RATES = {("choco", 99): 0.01, ("deepsqueeze", 99): 0.01}
RATES |= {("choco", 90): 0.1, ("deepsqueeze", 90): 0.05, ("choco", 0): 1, ("deepsqueeze", 0): 1}


@cache
def sweep(stem, *overrides):
    path = FOLDER / f"{stem}.yaml"
    return parse_sweep(path.read_text(), str(path), path.parent, overrides)


def numbers_of(table, skews):
    """Targets in the order of the reference, by skew and share that messages leave out."""
    lines = REFERENCE[REFERENCE.index("Targets (test acc") :].splitlines()
    if table[0] == "2":
        rows = [line for line in lines if line.startswith(f"{table} ")]
    elif table == "3":
        (line,) = (line for line in lines if line.startswith("3 "))
        rows = re.split(r"; ", line[line.index("0%") :])
    else:
        (line,) = (line for line in lines if line.startswith("4 "))
        part = line[line.index("R18") : line.index("VGG")]
        if table == "4b":
            part = line[line.index("VGG") :]
        rows = part.split(";")
    found = {}
    for row in rows:
        share, _, text = row.partition("%")
        share = int(re.search(r"(\d+)$", share)[1])
        values = [float(number) for number in re.findall(r"\d\d\.\d\d", text)]
        each = len(values) // len(skews)
        for place, skew in enumerate(skews):
            found[skew, share] = values[place * each : (place + 1) * each]
    return found


def place_in_row(table, algorithm, precision):
    """DS / LP-DS / CHOCO / LP-CHOCO in Table 2, CHOCO / LP-CHOCO in the others."""
    first = 2 if algorithm == "choco" and table[0] == "2" else 0
    return first + (precision == "int8")


@pytest.mark.parametrize("table", TABLES)
def test_targets_are_those_of_the_reference(table):
    skews = SETTINGS[table][7]
    wanted, found = numbers_of(table, skews), {}
    for precision in ("fp32", "int8"):
        for cell in sweep(f"table{table}_{precision}").cells:
            s = cell.scenario
            assert s.model.precision == precision
            keep = getattr(s.gossip.compressor, "keep", 1.0)
            key = (s.data.partition.skew, round(100 * (1 - keep)))
            row = found.setdefault(key, [None] * len(wanted[key]))
            row[place_in_row(table, s.gossip.algorithm, precision)] = s.paper.accuracy
    assert found == wanted
    assert sum(map(len, wanted.values())) == len(skews) * 2 * (4 if table[0] == "2" else 2)


@pytest.mark.parametrize("stem", FILES)
def test_settings_are_those_of_the_reference(stem):
    table = stem.removeprefix("table").partition("_")[0]
    model, graph, devices, epochs, lr, milestones, factor, _, compressed = SETTINGS[table]
    for cell in sweep(stem).cells:
        s = cell.scenario
        assert (s.model.name, s.topology.kind, s.fleet.num_devices) == (model, graph, devices)
        t = s.training
        assert (t.epochs, t.optimizer.lr, t.device_seeds) == (epochs, lr, "shared")
        assert (t.schedule.milestones, t.schedule.factor) == (milestones, factor)
        assert (t.schedule.warmup_epochs, t.schedule.warmup_factor) == (1, 0.1)
        assert (t.optimizer.momentum, t.optimizer.nesterov) == (0.9, True)
        assert t.optimizer.weight_decay == 1e-4
        kind = "quasi_global" if table == "3" else "local"
        assert t.optimizer.momentum_kind == kind
        assert (s.data.batch_size, s.evaluation.gossip_rounds) == (32, 50)
        assert s.data.augment == ("resized_crop_flip" if table[0] == "4" else "crop_flip")
        assert s.data.image_size == (224 if table[0] == "4" else None)
        keep = getattr(s.gossip.compressor, "keep", 1.0)
        left_out = round(100 * (1 - keep))
        assert left_out in (0, compressed)
        assert s.gossip.averaging_rate == RATES[s.gossip.algorithm, left_out]
        assert s.gossip.compressor.values == "fp32"
        assert (s.paper.place, s.paper.epochs) == (f"Table {table}", epochs)
        if s.model.precision == "int8":
            switches = s.model.quantization
            assert (switches.zero_point, switches.ranges) == ("float_offset", "gossiped")
            assert s.model.initialization == "low_precision"


SPLITS = ("tr", "va", "te")
TEXTS = {"ag_news": "AGNews", "sent_len": "SentLen"}


@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize("place", [0, 1])
def test_targets_of_texts_are_those_of_the_reference(source, place):
    """Table 5: four numbers for each of two shares and three skews; Table 1: fp32/int8."""
    lines = REFERENCE[REFERENCE.index("Targets (test acc") :].splitlines()
    (line,) = (line for line in lines if line.startswith(f"5 {TEXTS[source]}"))
    numbers = [float(n) for n in re.findall(r"\d\d\.\d\d", line)]
    assert len(numbers) == 24
    precision = ("fp32", "int8")[place]
    *cells, single = sweep(f"table5_{source}_{precision}").cells
    found = {}
    for cell in cells:
        s = cell.scenario
        keep = getattr(s.gossip.compressor, "keep", 1.0)
        group = 3 * (keep < 1) + (0, 0.5, 0.9).index(s.data.partition.skew)
        found[4 * group + place_in_row("2", s.gossip.algorithm, precision)] = s.paper.accuracy
        assert (s.training.epochs, s.training.optimizer.lr, s.fleet.num_devices) == (5, 3e-5, 4)
        options = s.training.optimizer.options
        assert options == {"beta1": 0.9, "beta2": 0.9, "weight_decay": 1e-4}
        assert s.gossip.averaging_rate == (1 if keep == 1 else 0.01)
    assert found == {k: numbers[k] for k in range(24) if k % 2 == place}
    (line,) = (line for line in lines if line.startswith("1 (FP/LP)"))
    of_table_1 = line.partition(f"{TEXTS[source]} ")[2].split()[0].split("/")
    assert single.scenario.paper.place == "Table 1"
    assert single.scenario.fleet.num_devices == 1
    assert single.scenario.paper.accuracy == float(of_table_1[place])


@pytest.mark.parametrize("place", [0, 1])
def test_targets_of_a_single_device_are_those_of_the_reference(place):
    lines = REFERENCE[REFERENCE.index("Targets (test acc") :].splitlines()
    (line,) = (line for line in lines if line.startswith("1 (FP/LP)"))
    pairs = re.findall(r"(\d\d\.\d\d)/(\d\d\.\d\d)", line)
    found = []
    for data in ("cifar10", "imagenette"):
        for cell in sweep(f"table1_{data}_{('fp32', 'int8')[place]}").cells:
            s = cell.scenario
            assert s.fleet.num_devices == 1
            assert (s.model.precision, s.paper.place) == (("fp32", "int8")[place], "Table 1")
            found.append(s.paper.accuracy)
    assert found == [float(pair[place]) for pair in pairs[:5]]


def test_every_file_of_the_folder_is_read_and_says_what_of_the_paper_it_is():
    places = set()
    for path in sorted(FOLDER.glob("*.yaml")):
        text = path.read_text()
        if "\nsweep:" in text:
            scenarios = [cell.scenario for cell in sweep(path.stem).cells]
        else:
            scenarios = [load_scenario(path)]
        assert all(scenario.paper for scenario in scenarios), path
        places |= {scenario.paper.place for scenario in scenarios}
    tables = {f"Table {table}" for table in ("1", "5", *TABLES)}
    assert places == tables | {"Fig. 1", "Fig. 2", "Fig. 3"}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """CIFAR-10 as Parquet and Imagenette as folders: 64 and 40 images, 4 of them for tests."""
    rng, root = np.random.default_rng(0), tmp_path_factory.mktemp("paper")
    for split, number in (("train", 64), ("test", 4)):
        images = [encode(random_images(rng, 32, 32, 3)) for _ in range(number)]
        write_parquet(
            root / "cifar10" / f"{split}.parquet", images, [k % 10 for k in range(number)]
        )
    for split, number in (("train", 4), ("val", 1)):
        folder = root / "imagenette" / "imagenette2-160" / split
        photographs = {
            name: [random_images(rng, 40, 48, 3) for _ in range(number)]
            for name in CLASS_NAME_BY_WORDNET_ID
        }
        write_folders(folder, photographs, "png")
    return root


def prepared(datasets, stem, *overrides):
    """The last cell of a file: the most compressed one, at the largest skew."""
    source = "imagenette" if stem.startswith("table4") else "cifar10"
    path = [] if stem.startswith("table5") else [f"data.path={datasets / source}"]
    small = (
        *path,
        "data.batch_size=1",
        "training.epochs=null",
        "training.rounds=2",
        "evaluation.samples=2",
        "evaluation.gossip_rounds=2",
        "evaluation.device_sample=1",
    )
    file = FOLDER / f"{stem}.yaml"
    text = file.read_text()
    cells = text.index("  list:\n")
    last = text.rindex("\n    - ") + 1
    text = text[:cells] + "  list:\n" + text[last:]  # one cell: a sweep checks all of its cells
    (cell,) = parse_sweep(text, str(file), file.parent, (*small, *overrides)).cells
    return prepare(cell.scenario)


SMALL = [stem for stem in FILES if stem[5:7] in ("2a", "2b", "3_")]


@pytest.mark.parametrize("stem", some(SMALL, 2))
def test_each_small_model_trains_for_two_rounds(datasets, tmp_path, stem):
    fewer = ("fleet.devices=4",) if stem.startswith("table2b") else ()  # 16 take longer
    trained_for_two_rounds(prepared(datasets, stem, *fewer), tmp_path)


def trained_for_two_rounds(plan, tmp_path):
    console = Console(file=StringIO())
    result = run_scenario(plan, tmp_path / "run", inline=True, console=console)
    assert result.summary["rounds"] == 2
    assert 0 <= result.summary["after_gossip_accuracy"] <= 1


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_single_device_trains_for_two_rounds(datasets, tmp_path, precision):
    """ResNet-20 in place of VGG-11 of the last cell."""
    plan = prepared(datasets, f"table1_cifar10_{precision}")
    scenario = plan.scenario
    model = scenario.model.model_copy(update={"name": "resnet20"})
    trained_for_two_rounds(prepare(scenario.model_copy(update={"model": model})), tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("source", TEXTS)
def test_texts_train_for_two_rounds(tmp_path, source, precision):
    """A tiny DistilBERT in place of the pretrained one, on a corpus of a few words."""
    pytest.importorskip("transformers")
    if source == "ag_news":
        write_ag_news(tmp_path)
    else:  # SentEval's file: split, class, sentence; class k has 5 + 4 k words or a few more
        lines = [
            f"{s}\t{k % 6}\t{'a b c d e' + ' f g h i' * (k % 6)}" for s in SPLITS for k in range(24)
        ]
        (tmp_path / "sentence_length.txt").write_text("\n".join(lines))
    tiny = "{vocabulary: 64, layers: 1, width: 16, heads: 2, hidden: 24, positions: 14}"
    overrides = (
        f"data.path={tmp_path}",
        f"data.options={{max_length: 14, vocabulary: 64, cache: {tmp_path / 'cache'}}}",
        "model.name=distilbert",
        f"model.options={tiny}",
    )
    plan = prepared(tmp_path, f"table5_{source}_{precision}", *overrides)
    trained_for_two_rounds(plan, tmp_path)


LARGE = [s for s in FILES if s[5:7] not in ("2a", "2b", "3_")]


@pytest.mark.parametrize("stem", LARGE)
def test_each_large_model_takes_a_step(datasets, stem):
    """Its fleet would hold gigabytes; the step is that of a device."""
    overrides = ("data.image_size=32",) if stem.startswith("table4") else ()
    plan = prepared(datasets, stem, *overrides)
    compute = choose_compute(plan.scenario, 0)
    model = make_flat_model(plan.scenario, plan.data, compute)
    seed_dropout_(model.leaf_modules, 1)
    seed_rounding_(model.leaf_modules, 1)
    shard = plan.shards()[-1]
    batches = BatchStream(shard, 1, plan.scenario.data.augment, plan.data.mean, plan.data.std, 1, 0)
    loss, gradient = model.loss_and_gradient(*batches.batch(0))
    assert loss > 0
    assert gradient[: model.num_trainable].abs().max() > 0
