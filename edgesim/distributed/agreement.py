"""The start of gossip: every process says what it begins with, or why it can't begin.

All processes send a record of the same length, also those that failed. So all of them go on, or all
raise an error that names the process and the reason, and may call `gossip_around` again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from edgesim.distributed.errors import GossipError
from edgesim.distributed.peers import Peers
from edgesim.errors import EdgesimError

DIGEST_BYTES = 16
VALUES = "the values of parameters"
_BYTES = 500  # of the digests, or of an error's text
_FAILED, _READY = b"\0", b"\1"


def digest_of(*values: object) -> bytes:
    """Digest of values by their `repr`."""
    return blake2b(repr(values).encode(), digest_size=DIGEST_BYTES).digest()


def agree(peers: Peers, own: Mapping[str, bytes] | Exception) -> None:
    """Tell all processes what this one begins with, and refuse differences from process 0.

    Args:
        peers: all processes, each of which must call this.
        own: digests of what must be equal everywhere, each by what it is of; or the error by which
            this process can't begin.

    Raises:
        GossipError: a process can't begin, or differs from process 0; the same in all processes.
        Exception: the process's own error.
    """
    records = peers.start(_record(own))
    if isinstance(own, Exception):
        raise own
    for rank, record in enumerate(records):
        if record[:1] == _FAILED:
            text = record[1:].rstrip(b"\0").decode(errors="ignore")
            raise GossipError(f"process {rank} can't begin gossip: {text}")
    first, *others = (_split(record[1:]) for record in records)
    for rank, other in enumerate(others, start=1):
        differing = [name for name, a, b in zip(own, first, other, strict=False) if a != b]
        if differing:
            raise GossipError(_difference(rank, differing))


def _record(own: Mapping[str, bytes] | Exception) -> bytes:
    """Equally many bytes in every process."""
    if isinstance(own, Exception):
        kind = "" if isinstance(own, EdgesimError) else f"{type(own).__name__}: "
        record = _FAILED + f"{kind}{own}".encode()[:_BYTES]
    else:
        record = _READY + b"".join(own.values())
    assert len(record) <= 1 + _BYTES, "a longer one than those of others could not be gathered"
    return record.ljust(1 + _BYTES, b"\0")


def _split(digests: bytes) -> list[bytes]:
    return [digests[i : i + DIGEST_BYTES] for i in range(0, len(digests), DIGEST_BYTES)]


def _difference(rank: int, differing: list[str]) -> str:
    if differing == [VALUES]:
        return (
            f"the parameters of process {rank} differ from those of process 0; call "
            "torch.manual_seed with one number before the model is made, and load checkpoints "
            "after gossip_around"
        )
    names = ", ".join(name for name in differing if name != VALUES)
    return f"process {rank} differs from process 0 in {names}; give all processes the same"
