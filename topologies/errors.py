"""The one error of this package."""


class TopologyError(ValueError):
    """A graph, file or option that cannot work: what is wrong, where, and what would be right."""
