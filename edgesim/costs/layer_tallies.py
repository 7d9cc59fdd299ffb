"""What of a layer its time depends on: the kind of code that it runs, and its sizes.

A clock with measured times of kinds of layers (hardware/profiles.py) adds these sizes up. Layers of
one kind run the same code, so that a time for each call, product, number and weight describes them.
"""

from __future__ import annotations

from math import prod
from typing import assert_never

from edgesim.costs.layer import Layer
from edgesim.hardware.work import FAR_ENTRIES, LayerTally, Work
from edgesim.models.evonorm import COMPILED_FROM


def tally_of(layer: Layer, work: Work) -> LayerTally:
    """Kind and sizes of a layer.

    Args:
        layer: the layer.
        work: of all its passes.
    """
    entries, comparisons = layer.input_entries + layer.output_entries, 0
    match layer.kind:
        case "fork" | "view":  # a fork's time is part of its sum's
            return _tally(layer, work, calls=0, macs=0, entries=0)
        case "copy" | "average":
            return _tally(layer, work, calls=0, macs=0, entries=entries)
        case "max_pool" | "compact_max_pool":
            comparisons = layer.taps * layer.output_entries
    return _tally(layer, work, calls=1, macs=work.macs + comparisons, entries=entries)


def _tally(layer: Layer, work: Work, *, calls: int, macs: int, entries: int) -> LayerTally:
    return LayerTally(
        kind=timed_kind(layer),
        calls=calls,
        macs=macs,
        entries=entries,
        far_entries=max(0, entries - FAR_ENTRIES),
        weights=_weights(layer),
        work=work.without(()),
    )


def _weights(layer: Layer) -> int:
    """Numbers that are packed or coded once a step: weights, and the second factor of a product."""
    if layer.kind == "product":
        rows, columns = layer.output_shape[-2:]
        return layer.input_entries // rows * columns
    return layer.num_weights + layer.table_entries


def timed_kind(layer: Layer) -> str:
    """Kind of code that a layer runs, one of `layer_kinds.LAYER_KINDS`."""
    precision = "fp32" if layer.settings is None else "int8"
    match layer.kind:
        case "convolution":
            return f"{_form_of_convolution(layer)}convolution_{precision}"
        case "max_pool":
            return "max_pool_fp32"
        case "compact_max_pool":
            return "max_pool_int8"
        case "copy" | "average" | "loss" | "view":
            return "ends_fp32"
        case "fork":
            return "residual_sum_fp32"
        case "evonorm_s0" if prod(layer.input_shape[1:]) < COMPILED_FROM:
            return "small_evonorm_s0_fp32"
        case "evonorm_s0" | "batch_norm" | "group_norm":
            return f"{layer.kind}_fp32"
        case "dropout" | "relu":
            return f"{layer.kind}_fp32"
        case (
            "linear"
            | "product"
            | "embedding"
            | "range_evonorm"
            | "range_batch_norm"
            | "layer_norm"
            | "residual_sum"
        ):
            return f"{layer.kind}_{precision}"
        case kind:
            assert_never(kind)


def _form_of_convolution(layer: Layer) -> str:
    """What comes before the word `convolution` in the name of its kind."""
    has_groups = layer.groups > 1
    if layer.is_unfolded:
        return "unfolded_depthwise_" if has_groups else "unfolded_"
    if not layer.needs_input_gradient:
        return "first_"
    if has_groups:
        return "depthwise_"
    return "pointwise_" if layer.taps == 1 else ""
