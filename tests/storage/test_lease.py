"""Of all who want to hold a folder one does, and who ended without giving it back is succeeded."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from edgesim.fleet.lease import Lease, LeaseError
from edgesim.storage import StorageError

RENEW_S, STILL_S = 0.05, 1.0


@pytest.fixture
def lease(store):
    return lambda: Lease(store, renew_s=RENEW_S, still_s=STILL_S)


def abandon(lease: Lease) -> None:
    """Leave it as a process does that was killed."""
    lease.__enter__()
    lease._ended.set()
    lease._thread.join()


def wait_for(condition) -> None:
    pause = Event()
    for _ in range(600):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("gave up waiting")


def test_who_holds_it_is_named_and_nobody_else_gets_in(lease):
    with lease() as held:
        with pytest.raises(LeaseError, match=r"still going on in another process \(\d+ on .+\)"):
            lease().__enter__()
        held.check()
    with lease() as held:  # it was given back
        held.check()


def test_a_holder_that_ended_is_succeeded(lease, store, caplog):
    abandon(lease())
    with lease() as held:
        assert "does it live?" in caplog.text
        held.check()
        assert store.names("leases/*") == ["leases/000001.json"]
    assert store.names("leases/*") == []


def test_who_was_held_up_and_succeeded_ends(lease, monkeypatch):
    """As a process that was stopped for a while, or was cut off from the store."""
    awake, renew = Event(), Lease._numbers

    def when_awake(self):
        if self is slow and not awake.is_set() and self._thread.is_alive():
            awake.wait()
        return renew(self)

    slow = lease()
    monkeypatch.setattr(Lease, "_numbers", when_awake)
    with slow, lease() as successor:
        awake.set()
        wait_for(lambda: slow._is_lost)
        with pytest.raises(LeaseError, match="another has gone on with its run"):
            slow.check()
        successor.check()
    with lease() as third:  # the slow one took nothing away
        third.check()


@pytest.mark.parametrize("abandoned", [False, True])
def test_one_of_many_gets_it(lease, abandoned):
    if abandoned:
        abandon(lease())
    together, all_tried = Barrier(6), Barrier(6)

    def attempt(_: int) -> bool:
        mine = lease()
        together.wait()
        try:
            mine.__enter__()
        except LeaseError:
            all_tried.wait()
            return False
        all_tried.wait()
        mine.__exit__(None, None, None)
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1


def test_a_store_that_does_not_answer_for_a_while_takes_no_lease(lease, store, monkeypatch, caplog):
    with lease() as held:
        write, failures = type(store).write, []

        def fail(self, name, data, **options):
            failures.append(name)
            raise StorageError(f"{name}: can't be written")

        monkeypatch.setattr(type(store), "write", fail)
        wait_for(lambda: len(failures) > 2)
        monkeypatch.setattr(type(store), "write", write)
        held.check()
    assert re.search(r"lease of this run can't be renewed: leases/000000.json", caplog.text)
    assert store.names("leases/*") == []


def test_a_name_is_created_once(store):
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    assert store.names("a/*") == ["a/b"]
