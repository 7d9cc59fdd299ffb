"""edgesim: emulates a fleet of edge devices that train one model together, without a server.

    import edgesim

    edgesim.validate("quickstart")                 # checks a scenario and starts nothing
    edgesim.cost("quickstart")                     # what it costs the devices, without training
    run = edgesim.run("quickstart", seed=2)        # trains the fleet
    run.evaluations                                # tables of a run, with pandas
    run = edgesim.load_run("runs/quickstart-...")  # the same of a run that was made before
    results = edgesim.sweep("quickstart", {"grid": {"seed": [1, 2]}})  # many runs, compared
    edgesim.trained_model(run).module              # the averaged model, a torch module
    edgesim.gossip_around(model, optimizer, "quickstart")  # the same gossip in real processes

A name is imported when it is first used: importing edgesim itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgesim.api.checks import Checked, validate
    from edgesim.api.costs import Costs, cost
    from edgesim.api.runs import resume, run
    from edgesim.api.scenarios import load_scenario
    from edgesim.api.trained import TrainedModel, trained_model
    from edgesim.device.trainer import DivergedError
    from edgesim.distributed.around import gossip_around
    from edgesim.distributed.errors import GossipError
    from edgesim.distributed.gossip import Gossip
    from edgesim.errors import (
        EdgesimError,
        OwnCodeError,
        ResultWarning,
        ScenarioError,
        ScenarioWarning,
    )
    from edgesim.fleet.recording.fleet_state import Sink
    from edgesim.results.differences import Comparison, compare_runs
    from edgesim.results.evaluation import Evaluation
    from edgesim.results.load import UnfinishedRunWarning, load_run
    from edgesim.results.run import Run
    from edgesim.scenario import Scenario, dump_scenario
    from edgesim.sinks.mlflow import MLflow
    from edgesim.sinks.tensorboard import TensorBoard
    from edgesim.sweeps.costs import SweepCosts, sweep_costs
    from edgesim.sweeps.directory import SweepError
    from edgesim.sweeps.load import SweepResults, load_sweep
    from edgesim.sweeps.run import SweepWarning, sweep

_HOMES = {
    "edgesim.api.checks": ("Checked", "validate"),
    "edgesim.api.costs": ("Costs", "cost"),
    "edgesim.api.runs": ("resume", "run"),
    "edgesim.api.scenarios": ("load_scenario",),
    "edgesim.api.trained": ("TrainedModel", "trained_model"),
    "edgesim.device.trainer": ("DivergedError",),
    "edgesim.distributed.around": ("gossip_around",),
    "edgesim.distributed.errors": ("GossipError",),
    "edgesim.distributed.gossip": ("Gossip",),
    "edgesim.errors": (
        "EdgesimError",
        "OwnCodeError",
        "ResultWarning",
        "ScenarioError",
        "ScenarioWarning",
    ),
    "edgesim.fleet.recording.fleet_state": ("Sink",),
    "edgesim.results.differences": ("Comparison", "compare_runs"),
    "edgesim.results.evaluation": ("Evaluation",),
    "edgesim.results.load": ("UnfinishedRunWarning", "load_run"),
    "edgesim.results.run": ("Run",),
    "edgesim.scenario": ("Scenario", "dump_scenario"),
    "edgesim.sinks.mlflow": ("MLflow",),
    "edgesim.sinks.tensorboard": ("TensorBoard",),
    "edgesim.sweeps.costs": ("SweepCosts", "sweep_costs"),
    "edgesim.sweeps.directory": ("SweepError",),
    "edgesim.sweeps.load": ("SweepResults", "load_sweep"),
    "edgesim.sweeps.run": ("SweepWarning", "sweep"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Checked",
    "Comparison",
    "Costs",
    "DivergedError",
    "EdgesimError",
    "Evaluation",
    "Gossip",
    "GossipError",
    "MLflow",
    "OwnCodeError",
    "ResultWarning",
    "Run",
    "Scenario",
    "ScenarioError",
    "ScenarioWarning",
    "Sink",
    "SweepCosts",
    "SweepError",
    "SweepResults",
    "SweepWarning",
    "TensorBoard",
    "TrainedModel",
    "UnfinishedRunWarning",
    "compare_runs",
    "cost",
    "dump_scenario",
    "gossip_around",
    "load_run",
    "load_scenario",
    "load_sweep",
    "resume",
    "run",
    "sweep",
    "sweep_costs",
    "trained_model",
    "validate",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name == "__version__":
        return import_module("importlib.metadata").version("edgesim")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
