"""No more holders than cores, and a dead holder keeps none."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
import time

import pytest

from edgesim.fleet.on_ray import core_pool
from edgesim.fleet.on_ray.core_pool import CorePool


def hold(folder, held, release):
    with CorePool(folder, 1).core():
        held.set()
        release.wait(60)


def test_never_more_holders_than_cores(tmp_path):
    pool, lock = CorePool(tmp_path, 2), threading.Lock()
    inside, most, total = 0, 0, 0

    def work():
        nonlocal inside, most, total
        for _ in range(20):
            with pool.core():
                with lock:
                    inside, total = inside + 1, total + 1
                    most = max(most, inside)
                time.sleep(0.001)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, total, inside) == (2, 120, 0)


def test_files_of_the_pool_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        with CorePool(tmp_path / "pool", 1).core():
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("pool/*")}
    finally:
        os.umask(before)
    assert modes.keys() > {"bell", "core-0", "queue"}
    assert set(modes.values()) == {0o600}


def test_a_system_that_makes_pipes_by_path_alone_has_the_same_pool(tmp_path, monkeypatch):
    """As builds of Python for older macOS: they refuse a folder's descriptor."""
    make = os.mkfifo

    def mkfifo(path, mode=0o666, *, dir_fd=None):
        if dir_fd is not None:
            raise NotImplementedError("mkfifo: dir_fd unavailable on this platform")
        make(path, mode)

    monkeypatch.setattr(os, "mkfifo", mkfifo)
    for _ in range(2):  # the second finds the pipe of the first
        with CorePool(tmp_path / "pool", 1).core():
            assert (tmp_path / "pool" / "bell").is_fifo()


def test_whoever_waits_takes_any_core_that_becomes_free(tmp_path):
    """One holder may take for ever: its core was taken first, and the other one is given back."""
    pool, got_one = CorePool(tmp_path, 2), threading.Event()

    def wait():
        with pool.core():
            got_one.set()

    with pool.core():
        with pool.core():
            waiting = threading.Thread(target=wait, daemon=True)
            waiting.start()
            assert not got_one.wait(0.05)
        assert got_one.wait(60)
    waiting.join()


def test_whoever_gives_a_core_back_wakes_the_next_in_line(tmp_path, monkeypatch):
    """Not the look for dead holders, which comes too late here."""
    monkeypatch.setattr(core_pool, "DEAD_HOLDER_S", 600.0)
    pool, done = CorePool(tmp_path, 1), []

    def work(number):
        with pool.core():
            done.append(number)

    with pool.core():
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)  # until they wait
        assert not done
    for thread in threads:
        thread.join(60)
    assert sorted(done) == [0, 1, 2]


@pytest.mark.parametrize(("seconds", "rings"), [(600.0, True), (0.01, False)])
def test_who_waits_looks_again_at_a_ring_or_after_a_while(tmp_path, monkeypatch, seconds, rings):
    monkeypatch.setattr(core_pool, "DEAD_HOLDER_S", seconds)
    CorePool(tmp_path, 1)
    bell = os.open(tmp_path / "bell", os.O_RDWR | os.O_NONBLOCK)
    waiting = threading.Thread(target=core_pool._wait_for, args=(bell,), daemon=True)
    waiting.start()
    if rings:
        waiting.join(0.2)
        assert waiting.is_alive()
        core_pool._ring(bell)
    waiting.join(20)
    assert not waiting.is_alive()
    with pytest.raises(BlockingIOError):  # the ring was heard
        os.read(bell, 1)
    os.close(bell)


def test_a_process_with_many_open_files_can_wait_for_a_core(tmp_path):
    """As an actor with a connection to each of a thousand others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("no process may have so many open files here")
    pool = CorePool(tmp_path, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    others = [null]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        others += [os.dup(null) for _ in range(1100)]
        waiting = threading.Thread(target=lambda: pool.core().__enter__(), daemon=True)
        with pool.core():
            waiting.start()
            waiting.join(0.2)
            assert waiting.is_alive()
        waiting.join(60)
        assert not waiting.is_alive()
    finally:
        for descriptor in others:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_killed_process_gives_its_core_back(tmp_path):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, held, release))
    process.start()
    try:
        assert held.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with CorePool(tmp_path, 1).core():
            pass
    finally:
        process.kill()
