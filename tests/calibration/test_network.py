"""The way to a peer, on this machine's own loop."""

from __future__ import annotations

import socket
from queue import Queue
from threading import Thread

import pytest

from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.network import measure_peer, serve


@pytest.fixture(scope="module")
def port():
    ports: Queue[int] = Queue()
    Thread(target=serve, args=(0, ports.put), daemon=True).start()
    return ports.get(timeout=10)


def test_a_peer_that_serves_is_measured(port, monkeypatch):
    monkeypatch.setattr("edgesim.calibration.network._LONG_ENOUGH_S", 0.0)
    found = measure_peer(f"127.0.0.1:{port}")
    assert found.bandwidth_bps > 0
    assert found.latency_s > 0


def test_a_peer_serves_again_after_one_that_hung_up_or_talked_nonsense(port, monkeypatch):
    monkeypatch.setattr("edgesim.calibration.network._LONG_ENOUGH_S", 0.0)
    for greeting in (b"", b"GET / HTTP/1.1\r\n", b"D\0\0", b"D" + bytes(7) + b"\x09abc"):
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(greeting)
    assert measure_peer(f"127.0.0.1:{port}").bandwidth_bps > 0


@pytest.mark.parametrize("peer", ["nowhere", "host:", ":7", "host:70000", "host:x"])
def test_what_is_no_peer_is_refused(peer):
    with pytest.raises(CalibrationError, match="must be HOST:PORT"):
        measure_peer(peer)


def test_a_peer_that_does_not_listen_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    with pytest.raises(CalibrationError, match=f"--serve {closed}` there first"):
        measure_peer(f"127.0.0.1:{closed}")


def test_a_port_in_use_is_refused():
    with (
        socket.create_server(("", 0)) as listener,
        pytest.raises(CalibrationError, match="can't listen there"),
    ):
        serve(listener.getsockname()[1], lambda _: None)
