"""Rate and latency of TCP to a peer, which runs `edgesim calibrate --serve PORT`.

The peer answers each byte of greeting with a byte, and each announced block, once it has arrived as
a whole, with a byte. Nothing that arrives is kept.

    probe: b"E"                 answer: b"k"
    block: b"D" + length (8 bytes, big-endian) + that many bytes     answer: b"k"
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from edgesim.calibration.errors import CalibrationError

_PROBE, _BLOCK, _DONE = b"E", b"D", b"k"
_LENGTH_BYTES = 8
_PROBES = 20
_FIRST_BLOCK = 2**16
_LARGEST_BLOCK = 2**30
_LONG_ENOUGH_S = 1.0  # of a block: the window of TCP has opened by then
_TIMEOUT_S = 30.0
_SILENCE_S = 5.0  # after which a peer is hung up on, so that the next one is served


@dataclass(frozen=True, slots=True)
class Reached:
    """What TCP reaches.

    Attributes:
        bandwidth_bps: bits per second of payload, towards the peer.
        latency_s: half of the median time of a byte there and a byte back.
    """

    bandwidth_bps: float
    latency_s: float


def measure_peer(peer: str) -> Reached:
    """Measure the way to a peer.

    Args:
        peer: `host:port`.

    Raises:
        CalibrationError: the peer can't be reached, or does not answer as it should.
    """
    host, _, port = peer.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise CalibrationError(f"--peer {peer}: must be HOST:PORT, such as 192.168.1.7:7777")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            round_trips = [_seconds(link, _PROBE) for _ in range(_PROBES)]
            return Reached(_bandwidth_bps(link), median(round_trips) / 2)
    except (OSError, UnicodeError) as error:  # UnicodeError: 192..168 is no name of a host
        raise CalibrationError(
            f"--peer {peer}: can't be reached ({getattr(error, 'strerror', None) or error}); start "
            f"`edgesim calibrate --serve {port}` there first"
        ) from error


def _bandwidth_bps(link: socket.socket) -> float:
    length = _FIRST_BLOCK
    while True:
        head = _BLOCK + length.to_bytes(_LENGTH_BYTES, "big")
        seconds = _seconds(link, head, bytes(length))
        if seconds >= _LONG_ENOUGH_S or length >= _LARGEST_BLOCK:
            return 8 * length / seconds
        length *= 2


def _seconds(link: socket.socket, *parts: bytes) -> float:
    """Time from the first byte sent to the answer."""
    start_s = perf_counter()
    for part in parts:
        link.sendall(part)
    if link.recv(1) != _DONE:
        raise OSError("it does not answer as `edgesim calibrate --serve` does")
    return perf_counter() - start_s


def serve(port: int, ready: Callable[[int], None]) -> None:
    """Answer calibrations of peers, one after the other, until the process is interrupted.

    Args:
        port: to listen on, at all addresses of the machine; 0: any that is free.
        ready: is called with the port once peers can connect.

    Raises:
        CalibrationError: the port can't be had.
    """
    try:
        listener = socket.create_server(("", port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CalibrationError(
            f"--serve {port}: can't listen there ({reason}); choose another port"
        ) from error
    with closing(listener):
        ready(listener.getsockname()[1])
        while True:
            link, _ = listener.accept()
            with link:
                link.settimeout(_SILENCE_S)
                _answer(link)


def _answer(link: socket.socket) -> None:
    """Answer one peer until it hangs up; one that says something else is hung up on."""
    try:
        while (kind := link.recv(1)) in (_PROBE, _BLOCK):
            if kind == _BLOCK and not _swallow(link):
                return
            link.sendall(_DONE)
    except OSError:  # the peer has gone; the next one is served
        return


def _swallow(link: socket.socket) -> bool:
    """Read a block and forget it; false if the peer hangs up, or announces too much."""
    head = b""
    while len(head) < _LENGTH_BYTES:
        part = link.recv(_LENGTH_BYTES - len(head))
        if not part:
            return False
        head += part
    left = int.from_bytes(head, "big")
    if left > _LARGEST_BLOCK:
        return False
    while left:
        part = link.recv(min(left, 2**20))
        if not part:
            return False
        left -= len(part)
    return True
