"""Devices of one site, which average with their leader before leaders exchange (Bagua)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from topologies import members_of

Role: TypeAlias = Literal["device", "leader", "member"]
"""A device without sites; a site's leader; another device of a site."""


@dataclass(frozen=True, slots=True)
class SitePlace:
    """A device in its site.

    Attributes:
        role: of the device.
        mates: devices of its site, itself included, increasing.
        rank: of the site among all.
        leaders: of all sites, in the order of sites.
    """

    role: Role
    mates: tuple[int, ...]
    rank: int
    leaders: tuple[int, ...]

    @classmethod
    def of(cls, sites: tuple[int, ...] | None, device: int, num_devices: int) -> SitePlace:
        """Place of a device.

        Args:
            sites: number of the site of each device; None without sites.
            device: number of the device.
            num_devices: of the fleet.
        """
        members, leaders = _members_and_leaders(sites, num_devices)
        if sites is None:
            return cls("device", (device,), device, leaders)
        mates = members[sites[device]]
        return cls("leader" if device == mates[0] else "member", mates, sites[device], leaders)


@lru_cache(maxsize=8)
def _members_and_leaders(
    sites: tuple[int, ...] | None, num_devices: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    members = members_of(sites, num_devices)
    return members, tuple(mates[0] for mates in members)
