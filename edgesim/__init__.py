"""edgesim: emulates a fleet of edge devices that train one model together, without a server."""

from edgesim.results import Run, load_run

__all__ = ["Run", "load_run"]
