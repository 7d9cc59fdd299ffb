"""Says how far one device of a host is."""

from __future__ import annotations

from edgesim.device.device import Device
from edgesim.fleet.host.paces import Intake
from edgesim.fleet.recovery.checkpoints import DeviceRecords
from edgesim.fleet.transport.progress import DeviceProgress
from edgesim.results.columns import RoundRecord

_OF_NEWEST_ROUND = ("loss", "push_weight", "virtual_time_s", "charge_left_j", "staleness_s")


def device_progress(
    device: Device, records: DeviceRecords, intake: Intake, newest: RoundRecord | None
) -> DeviceProgress:
    """How far a device is; may be asked while it computes in another thread.

    Args:
        device: which one.
        records: what its host keeps of it.
        intake: its mailbox.
        newest: its newest round, with the loss of the newest step; None before the first.
    """
    of_round = {} if newest is None else {name: getattr(newest, name) for name in _OF_NEWEST_ROUND}
    return DeviceProgress(
        device=device.index,
        rounds_done=device.round_index,
        end=device.end,
        waits_for=tuple(sorted({sender for sender, _ in intake.missing})),
        mailbox_messages=len(intake.mailbox),
        sent_bytes=records.sent_bytes,
        received_bytes=records.received_bytes,
        energy_j=device.spent_j,
        **of_round,
    )
