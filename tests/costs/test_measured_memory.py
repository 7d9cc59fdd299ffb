"""Memory of models of one's own is measured; a device that trains them holds as much."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from memory_meter import measure_device_memory

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.compression.compressors import TopK
from edgesim.costs.memory import MemoryModel
from edgesim.gossip.algorithm import OutEdge
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.learning.optimizers import Sgd
from edgesim.scenario import load_scenario

EXAMPLES = Path(__file__).parents[2] / "examples"
SGD = Sgd(momentum=0.9, nesterov=True, weight_decay=0.0)
INT8 = ("model.precision=int8", "model.quantization={backend: reference}")


@pytest.mark.parametrize("precision", [(), INT8], ids=["fp32", "int8"])
@pytest.mark.parametrize("name", ["two_layers", "sensors", "all_own"])
def test_predicted_memory_is_what_a_device_holds(name, precision):
    """Within a tenth: activations are those at the end of the forward pass, all at once."""
    settings = ("data.batch_size=48", *precision)
    studied = studied_scenario(load_scenario(EXAMPLES / f"{name}.yaml", settings))
    shape = studied.model.form.image_shape
    flat = make_flat_model(studied.scenario, _Form(shape, studied.model.form.num_classes), PLAIN)
    algorithm = FixedGraphChoco(
        compressor=TopK(keep=0.01, values="fp32"), layout=flat.layout, averaging_rate=0.01
    )
    generator = torch.Generator().manual_seed(0)
    measured = measure_device_memory(
        model=flat,
        batch=(
            torch.randn((48, *shape), generator=generator),
            torch.arange(48) % studied.model.form.num_classes,
        ),
        optimizer=SGD,
        algorithm=algorithm,
        out_edges=[OutEdge(1, 0.5)],
        in_weights={1: 0.5},
    )
    predicted = MemoryModel(
        model=studied.model,
        backend="reference" if precision else None,
        optimizer=SGD,
        algorithm=algorithm,
        out_degree=1,
        in_degree=1,
        message_bytes=measured.message_bytes,
    ).faithful()
    assert predicted.total == pytest.approx(measured.at_peak.total, rel=0.12)
    for component in ("master_copy", "gradients", "optimizer", "gossip_state", "mailbox"):
        held = measured.at_peak.by_component[component]
        assert predicted.by_component[component] == held


class _Form:
    input_dtype = "float32"

    def __init__(self, image_shape, num_classes):
        self.image_shape, self.num_classes = image_shape, num_classes
