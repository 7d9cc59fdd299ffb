"""Devices in place of addresses: after a device has left, its successor sends and receives for it.

Columns `sender` and `receiver` of messages.parquet and `waited_for` of rounds.parquet are
addresses. An address is that of the device which had it at first, and outlasts it.
"""

from __future__ import annotations

import numpy as np

from edgesim.report.frames import Frame


def between_devices(messages: Frame, num_devices: int, *, is_free: bool) -> Frame:
    """Messages whose `sender` and `receiver` are the devices that sent and received them.

    Args:
        messages: rows of messages.parquet.
        num_devices: of the fleet.
        is_free: whether devices go at their own pace, so that times say who received a message.
    """
    handovers = messages[messages["kind"] == "handover"]
    if handovers.empty:
        return messages
    left, came = ("departure_time_s", "arrival_time_s") if is_free else ("round", "round")
    moments, addresses = messages[came].to_numpy(), messages["receiver"].to_numpy()
    receivers, holders = addresses.copy(), np.arange(num_devices)
    for handover in handovers.sort_values(left, kind="stable").to_dict("records"):
        taken = np.flatnonzero(holders == handover["device"])
        holders[taken] = holders[handover["receiver"]]
        later = (moments > handover[left]) & np.isin(addresses, taken)
        receivers[later] = holders[addresses[later]]
    return messages.assign(sender=messages["device"], receiver=receivers)


def waiting_for_devices(rounds: Frame, messages: Frame) -> Frame:
    """Rounds whose `waited_for`, where there is one, is the device whose message ended the wait.

    A successor also waits for what the leaver hands over to it, in a round in which it already
    sends in the leaver's name: then it has waited for the leaver.
    """
    taken_over = messages[messages["device"] != messages["sender"]]
    if "waited_for" not in rounds or taken_over.empty:
        return rounds
    in_place = taken_over.drop_duplicates(["round", "sender"]).set_index(["round", "sender"])
    keys = rounds.set_index(["round", "waited_for"]).index
    found = in_place["device"].reindex(keys).to_numpy()
    is_unknown = np.isnan(found) | (found == rounds["device"].to_numpy())
    by = np.where(is_unknown, rounds["waited_for"], found).astype("int64")
    return rounds.assign(waited_for=by)
