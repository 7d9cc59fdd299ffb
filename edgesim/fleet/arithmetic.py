"""The accelerator and the 8-bit back end of a run: chosen, shown, and compiled before it begins."""

from __future__ import annotations

from rich.console import Console

from edgesim.assembly.build import Compute, choose_compute, make_flat_model
from edgesim.assembly.parts.own_model import example_batch
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.fleet.recording.view import View, say
from edgesim.learning.accelerator import num_local_gpus
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.backends import describe_backend


def choose_arithmetic(prepared: PreparedRun, mode: str, console: Console) -> Compute:
    """What a run computes with: a GPU if there is one, and a back end of 8-bit arithmetic.

    Args:
        prepared: the run.
        mode: "inline" for one process, "ray" for actors.
        console: where an ignored setting is said.
    """
    if mode == "inline":
        num_gpus = num_local_gpus()
    else:
        from edgesim.fleet.on_ray import launch

        num_gpus = launch.num_cluster_gpus()
    compute = choose_compute(prepared.scenario, num_gpus)
    share = prepared.scenario.fleet.gpus_per_actor
    if share != "auto" and (mode == "inline" or compute.accelerator == "cpu"):
        console.print(f"fleet.gpus_per_actor: {share:g} is ignored: no actor uses a GPU here")
    return compute


def prepare_arithmetic(prepared: PreparedRun, compute: Compute, view: View) -> None:
    """Show the 8-bit back end and compile its kernels; this is not part of the run's time."""
    if compute.backend:
        view.console.print(f"8-bit arithmetic: {describe_backend(compute.backend)}")
    if compute.backend == "int8_cpu":
        compile_kernels(prepared, compute, view)


def compile_kernels(prepared: PreparedRun, compute: Compute, view: View) -> None:
    """Take one small step here, so that actors find compiled kernels in numba's cache.

    Otherwise all of them would compile the same kernels at once, on the first run after an install.
    """
    model = make_flat_model(prepared.scenario, prepared.data, compute, prepared.start)
    seed_dropout_(model.model, 0)
    doing = "integer kernels, which the first run on a machine compiles: some tens of seconds"
    if not view.console.is_terminal:  # where no stage is shown
        say(view.console, doing)
    view.stage(doing)
    model.loss_and_gradient(*example_batch(prepared.dataset))
