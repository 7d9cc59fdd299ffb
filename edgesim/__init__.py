"""edgesim: emulates a fleet of edge devices that train one model together, without a server."""

from edgesim.results.load import Run, UnfinishedRunWarning, load_run

__all__ = ["Run", "UnfinishedRunWarning", "load_run"]
