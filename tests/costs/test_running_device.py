"""Devices of a fleet that really runs hold what the formulas say, and count what they say."""

import pandas as pd
import pytest
import yaml
from loopback import run_in_one_host
from small_fleets import small_scenario
from step_watch import watch_step
from storage_ledger import StorageLedger

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.compression.compressors import TopK
from edgesim.costs.closed_form import closed_form
from edgesim.costs.memory import MemoryModel
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.model_form import ModelForm
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.plan import FleetPlan
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.learning.optimizers import Sgd
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario import load_scenario

SCENARIO = small_scenario(
    name="held",
    fleet={"devices": 2},
    data={"train_samples": 96, "partition": {"kind": "iid"}},
    training={"rounds": 3},
)
OF_MESSAGES = {"send_buffers", "receive_buffers", "mailbox"}


class Reports:
    """An archive in memory."""

    def __init__(self):
        self.rounds = []

    def write_rounds(self, device, reports):
        self.rounds += [report.round for report in reports]

    def write_snapshot(self, snapshot):
        raise AssertionError("no snapshot is due")


def run(ready, folder, peaks):
    """A fleet in which each device's last training step is watched."""
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, folder)
    model = MeteredModel(make_flat_model(ready.scenario, ready.data, PLAIN))
    devices = make_devices(plan, dict(enumerate(ready.shards())), model.flat)
    archive = Reports()

    def watch(device):
        step, trainer = device.step, device.participant.trainer

        def watched_step(model):
            if device.round_index + 1 < ready.training.num_rounds:
                step(model)
                return
            ledger, flat = StorageLedger(), model.flat
            ledger.see([flat.parameters, device.participant.gossip_state.x], "master_copy")
            ledger.see([flat.gradient], "gradients")
            ledger.see(trainer._optimizer_state, "optimizer")
            ledger.see(device.participant.gossip_state, "gossip_state")
            ledger.see([trainer.buffers, *flat.model.buffers()], "weights")
            with watch_step(flat, ledger):
                step(model)
            peaks.append(sum(ledger.at_peak.values()))

        device.step = watched_step

    for device in devices:
        watch(device)

    run_in_one_host(devices, model, archive, ready.training.num_rounds)
    return archive.rounds


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_running_device_holds_and_counts_what_the_formulas_say(tmp_path, precision):
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    overrides = [f"model.precision={precision}"]
    if precision == "int8":
        overrides.append("model.quantization={backend: reference}")
    ready = prepare(load_scenario(path, overrides))
    peaks = []
    rounds = pd.DataFrame(run(ready, tmp_path, peaks))

    model = make_flat_model(ready.scenario, ready.data, PLAIN).model
    quantizer = getattr(model.head, "input", None)
    by_formula = closed_form(
        ModelForm(
            name="small_cnn",
            image_shape=ready.data.image_shape,
            num_classes=ready.data.num_classes,
            norm=ready.scenario.model.norm_used,
            settings=quantizer.settings if quantizer else None,
        ),
        16,
    )
    algorithm = FixedGraphChoco(
        averaging_rate=0.2,
        compressor=TopK(keep=0.2, values=precision),
        layout=ParameterLayout.from_shapes(by_formula.flat_shapes),
    )
    predicted = MemoryModel(
        model=by_formula,
        backend="reference",
        optimizer=Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4),
        algorithm=algorithm,
        out_degree=1,
        in_degree=1,
        message_bytes=1000,
    ).in_step()
    held = sum(b for c, b in predicted.by_component.items() if c not in OF_MESSAGES)
    assert len(peaks) == 2
    assert peaks == pytest.approx([held, held], rel=0.02)
    macs = rounds[["macs_int8", "macs_16bit", "macs_fp32"]].sum(axis=1)
    assert set(macs) == {by_formula.step_work.total.macs}
