"""Time of a training step of a small DistilBERT, int8 against fp32, on one thread.

    python benchmarks/text_step.py [--rounds 20] [--width 256] [--layers 4]

Steps of both precisions take turns. Times are those that the thread has computed, without waits for
the processor; the ratio is that of the fastest steps, and of the medians.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from edgesim.assembly.build import make_layers
from edgesim.data.torchvision_compat import torchvision_datasets
from edgesim.learning.flat_model import FlatModel
from edgesim.models.dropout import seed_dropout_
from edgesim.models.layers import Layers
from edgesim.models.own import OwnModelKind, build_own_model
from edgesim.models.text.encoder import TextClassifier, distilbert
from edgesim.quant.layers import seed_rounding_
from edgesim.scenario.files import scenario_of

SCENARIO = {
    "name": "step",
    "fleet": {"devices": 2},
    "topology": {"kind": "ring"},
    "data": {"partition": {"kind": "iid"}, "batch_size": 8},
    "training": {"rounds": 1, "optimizer": {"lr": 0.1}},
    "gossip": {
        "algorithm": "choco",
        "averaging_rate": 1.0,
        "compressor": {"kind": "identity", "values": "fp32"},
    },
}


def layers_of(precision: str) -> Layers:
    """Arithmetic of a precision, by the back end that is chosen for this machine."""
    from edgesim.assembly.build import choose_compute

    scenario = scenario_of(SCENARIO | {"model": {"name": "small_cnn", "precision": precision}})
    return make_layers(scenario, choose_compute(scenario, 0))


def main() -> None:
    """Print the times and their ratio."""
    parser = argparse.ArgumentParser()
    for name, default in (
        ("rounds", 20),
        ("width", 256),
        ("layers", 4),
        ("heads", 4),
        ("tokens", 64),
        ("batch", 16),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torchvision_datasets()
    shape = (2, options.tokens)

    def make(input_shape: tuple[int, ...], num_classes: int) -> TextClassifier:
        return distilbert(
            input_shape,
            num_classes,
            vocabulary=8192,
            layers=options.layers,
            width=options.width,
            heads=options.heads,
            hidden=4 * options.width,
            positions=options.tokens,
        )

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 8192, (options.batch, options.tokens), generator=generator)
    lengths = torch.randint(8, options.tokens + 1, (options.batch, 1), generator=generator)
    mask = (torch.arange(options.tokens) < lengths).to(torch.int64)
    inputs = torch.stack([tokens * mask, mask], dim=1)
    labels = torch.randint(0, 4, (options.batch,), generator=generator)
    models = {}
    for precision in ("fp32", "int8"):
        own = build_own_model(
            OwnModelKind(name="distilbert", make=make),
            input_shape=shape,
            num_classes=4,
            layers=layers_of(precision),
            seed=1,
            example=inputs[:2],
        )
        models[precision] = FlatModel(own, around_step=own.around_step)
    times: dict[str, list[float]] = {precision: [] for precision in models}
    for turn in range(options.rounds + 2):
        for precision, model in models.items():
            seed_dropout_(model.leaf_modules, turn)
            seed_rounding_(model.leaf_modules, turn)
            start = time.thread_time()
            model.loss_and_gradient(inputs, labels)
            if turn >= 2:  # the first ones compile
                times[precision].append(time.thread_time() - start)
    print(f"{options.layers} blocks of width {options.width}, {options.batch} x {options.tokens}")
    for precision, measured in times.items():
        print(f"{precision}: fastest {min(measured):.4f} s, median {median(measured):.4f} s")
    for what, of in (("fastest", min), ("median", median)):
        print(f"int8 / fp32, {what}: {of(times['int8']) / of(times['fp32']):.3f}")


if __name__ == "__main__":
    main()
