"""The children of a module, by all of their names."""

from __future__ import annotations

from torch import nn


def named_places(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Name and child of each place in a module where a child is.

    `nn.Module.named_children` gives a child once that has several names, as by `self.b = self.a`
    or twice in one `nn.Sequential`. Code that replaces a child must replace it in all places.
    """
    places = module.named_modules(remove_duplicate=False)
    return [(name, child) for name, child in places if name and "." not in name]
