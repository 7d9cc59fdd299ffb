"""Hardware of a fleet of which one link has another bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from edgesim.hardware.links import Link
from edgesim.hardware.timeline import Hardware


def with_wider_link(
    hardware: tuple[Hardware, ...], sender: int, receiver: int, bandwidth_bps: float
) -> tuple[Hardware, ...]:
    """The same hardware but for the bandwidth of one link, in one direction.

    Args:
        hardware: hardware of each device.
        sender: sender of the link.
        receiver: receiver of the link.
        bandwidth_bps: bits per second, of which the radios at both ends may allow less.
    """
    ends_bps = (hardware[end].profile.radio.bandwidth_bps for end in (sender, receiver))
    links = hardware[sender].links
    wider = replace(links[receiver], bandwidth_bps=min(bandwidth_bps, *ends_bps))
    changed = replace(hardware[sender], links=_OneChanged(links, receiver, wider))
    return (*hardware[:sender], changed, *hardware[sender + 1 :])


@dataclass(frozen=True)
class _OneChanged(Mapping[int, Link]):
    """Links of a device, of which one is another one."""

    links: Mapping[int, Link]
    receiver: int
    changed: Link

    def __getitem__(self, receiver: int) -> Link:
        return self.changed if receiver == self.receiver else self.links[receiver]

    def __iter__(self) -> Iterator[int]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)
