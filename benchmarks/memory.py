"""Bytes that a training step holds, int8 against fp32: `python benchmarks/memory.py`.

Counted from tensors that exist (edgesim.learning.step_memory), in the paper's accounting, without
fp32 master weights, and in the faithful one with them (docs/reference.md, section 6).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from step_memory import StepMemory, measure_step_memory

from edgesim.assembly.build import quantization_settings
from edgesim.learning.flat_model import FlatModel
from edgesim.models import EightBit, Layers, build_model, full_precision, seed_dropout_
from edgesim.quant.backends import choose_backend, describe_backend, make_backend

SETTINGS = quantization_settings()
CASES = {"resnet20": (32, 32), "vgg11": (32, 32), "resnet18": (64, 16), "mobilenet_v2": (32, 32)}
FP32_NORMS = ("evonorm_s0", "range_evonorm", "batch")


def step_memory(name: str, layers: Layers, side: int, batch: int) -> StepMemory:
    """Bytes of one step with momentum on a random batch."""
    generator = torch.Generator().manual_seed(1)
    module = build_model(
        name, image_shape=(3, side, side), num_classes=10, layers=layers, generator=generator
    )
    seed_dropout_(module, 1)
    model = FlatModel(module)
    images = torch.randn(batch, 3, side, side, generator=generator)
    momentum = torch.zeros_like(model.parameters)
    return measure_step_memory(model, images, torch.zeros(batch, dtype=torch.int64), momentum)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    backend = choose_backend("auto", SETTINGS, "cpu")
    arithmetic = make_backend(backend, SETTINGS)
    eight_bit = EightBit("range_evonorm", arithmetic, SETTINGS, conv_bias=True)
    columns = ("model", "batch", "step", "activations", "paper", "ratio", "faithful", "ratio")
    table = Table(
        *columns, title=f"bytes held between the passes of a step; {describe_backend(backend)}"
    )
    figures: dict[str, dict[str, dict[str, int]]] = {}
    for name, (side, batch) in CASES.items():
        int8 = step_memory(name, eight_bit, side, batch)
        steps = {
            f"fp32 {norm}": step_memory(name, full_precision(norm), side, batch)
            for norm in FP32_NORMS
        }
        figures[name] = {}
        for step, held in {**steps, "int8 range_evonorm": int8}.items():
            activations = sum(held.activations.values())
            figures[name][step] = {
                "activations": activations,
                "paper": held.paper,
                "faithful": held.faithful,
            }
            table.add_row(
                name,
                str(batch),
                step,
                f"{activations:,}",
                f"{held.paper:,}",
                f"{held.paper / int8.paper:.2f}",
                f"{held.faithful:,}",
                f"{held.faithful / int8.faithful:.2f}",
            )
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
