"""Forms of register tiles: what tables of positions have to know about them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of sums that stay in registers: some pixels by 16 output channels.

    Attributes:
        pixels: of a tile.
        terms: consecutive terms of each sum that one instruction multiplies.
        entry_bytes: of an entry of the image.
    """

    pixels: int
    terms: int
    entry_bytes: int
