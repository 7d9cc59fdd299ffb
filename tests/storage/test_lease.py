"""Of all who want to hold a folder one does, and who ended without giving it back is succeeded."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from types import SimpleNamespace

import pytest

from edgesim.storage import lease as module
from edgesim.storage.lease import Fence, Lease, LeaseError
from edgesim.storage.store import StorageError

LIMIT_S = 60.0  # ends a test that hangs


@pytest.fixture
def lease(store):
    return lambda: Lease(store, renew_s=0.05, still_s=1.5, look_s=0.1)


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
        pause.wait(LIMIT_S / 600)
    pytest.fail("gave up waiting")


def test_who_holds_it_is_named_and_nobody_else_gets_in(lease):
    refusal = r"still going on in another process \(\d+ on .+\)"
    with lease(), pytest.raises(LeaseError, match=refusal):
        lease().__enter__()
    with lease():  # it was given back
        pass


def test_a_holder_that_ended_is_succeeded(lease, store, caplog):
    abandon(lease())
    with lease():
        assert "watching for 1.5 s whether it lives" in caplog.text
        assert store.names("leases/*") == ["leases/000001.json"]
    assert store.names("leases/*") == []


@pytest.mark.parametrize(("successors", "number"), [(1, 1), (2, 0)])
def test_who_was_held_up_and_succeeded_writes_no_more(lease, store, successors, number):
    """As a process that was stopped for a while, or was cut off from the store."""
    slow = lease()
    abandon(slow)
    fence = Fence(store, slow.holder, look_s=0.0)
    fence.check()
    for _ in range(successors - 1):
        with lease():
            pass
    with lease() as last:
        assert last.holder.number == number
        with pytest.raises(LeaseError, match="another process has taken over this run"):
            fence.check()
        slow.__exit__(None, None, None)  # takes nothing away
        Fence(store, last.holder, look_s=0.0).check()


def test_a_holder_that_is_succeeded_renews_no_more(lease, store):
    with lease() as first:
        store.create("leases/000001.json", b'{"name": "another"}')
        first._thread.join(LIMIT_S)
        assert not first._thread.is_alive()
    assert store.read("leases/000001.json") == b'{"name": "another"}'


def test_an_interrupt_while_it_waits_leaves_no_lease(lease, store, monkeypatch):
    abandon(lease())
    slept = []

    def interrupt(seconds):
        slept.append(seconds)
        if len(slept) == module.LOOKS + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=interrupt))
    late = lease()
    with pytest.raises(KeyboardInterrupt):
        late.__enter__()
    assert late.holder.number == 1, "it was just taken"
    assert not late._thread.is_alive()
    assert store.names("leases/*") == ["leases/000000.json"]


def test_a_successor_lets_a_holder_show_itself_and_then_its_writers_look(store, monkeypatch):
    """It takes a lease once the old one stood still for `still_s`, and begins after `look_s`."""
    abandon(Lease(store, renew_s=0.05))
    slept_s = {"before": 0.0, "after": 0.0}

    def sleep(seconds):
        is_taken = store.exists("leases/000001.json")
        slept_s["after" if is_taken else "before"] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    with Lease(store, renew_s=0.05, still_s=30.0, look_s=5.0):
        assert slept_s["before"] == pytest.approx(30.0)
        assert slept_s["after"] > 5.0, "a writer looks every `look_s`, and a look takes a while"


def test_writers_look_now_and_then(lease, store, monkeypatch):
    now_s, looks = [100.0], []
    is_newest = module._is_newest
    ended = lease()
    abandon(ended)  # its own thread would look, too
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(
        module, "_is_newest", lambda *args: looks.append(now_s[0]) or is_newest(*args)
    )
    fence = Fence(store, ended.holder, look_s=5.0)
    for at_s in (100.0, 101.0, 104.9, 105.0, 109.9, 110.1):
        now_s[0] = at_s
        fence.check()
    assert looks == [100.0, 105.0, 110.1]


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_one_of_many_gets_it(lease, is_abandoned):
    if is_abandoned:
        abandon(lease())
    together, all_tried = Barrier(6, timeout=LIMIT_S), Barrier(6, timeout=LIMIT_S)

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
        Fence(store, held.holder).check()
    assert re.search(r"lease of this run can't be renewed: leases/000000.json", caplog.text)
    assert store.names("leases/*") == []


def test_a_lease_that_cannot_be_given_back_ends_no_run(lease, store, monkeypatch, caplog):
    def fail(self, names):
        raise StorageError("can't be cleared")

    with monkeypatch.context() as patched:
        patched.setattr(type(store), "delete", fail)
        with lease():
            pass
    assert "an ended lease can't be removed" in caplog.text
    with lease() as held:
        assert held.holder.number == 1


def test_a_store_without_conditional_puts_is_named(lease, store, monkeypatch):
    def refuse(self, name, data):
        raise StorageError(f"{name}: can't be written (not implemented)")

    monkeypatch.setattr(type(store), "create", refuse)
    with pytest.raises(StorageError, match=r"needs a store with conditional puts \(If-None-Match"):
        lease().__enter__()


def test_a_name_is_created_once(store):
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    assert store.names("a/*") == ["a/b"]


def test_a_guarded_store_changes_nothing_without_leave(store):
    store.write("kept", b"1")

    def refuse() -> None:
        raise LeaseError("no")

    guarded = store.guarded(refuse).child("below"), store.guarded(refuse)
    for one in guarded:
        for change in (
            one.make,
            one.sweep,
            lambda one=one: one.write("a", b""),
            lambda one=one: one.create("a", b""),
            lambda one=one: one.writer("a").__enter__(),
            lambda one=one: one.delete(["kept"]),
            lambda one=one: one.delete_tree("kept"),
            lambda one=one: one.move({"kept": "a"}),
        ):
            with pytest.raises(LeaseError):
                change()
    assert store.names("*") == ["kept"]
    assert guarded[1].read("kept") == b"1"


def test_what_takes_long_to_write_does_not_appear_after_a_takeover(store):
    is_held = [True]

    def check() -> None:
        if not is_held[0]:
            raise LeaseError("no")

    def write(guarded) -> None:
        with guarded.writer("table") as file:
            file.write(b"1")
            is_held[0] = False

    with pytest.raises(LeaseError):
        write(store.guarded(check))
    assert store.names("*") == []
