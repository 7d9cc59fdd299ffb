"""Matrix tiles: used only where processor, system and process have them."""

from __future__ import annotations

import ctypes
import sys

import pytest

from edgesim.quant.int8_cpu import Int8Cpu
from edgesim.quant.kernels.products import amx


def probe() -> bool:
    """Without the answer of an earlier call."""
    return amx.is_native.__wrapped__()


@pytest.mark.skipif(not amx.is_native(), reason="needs Intel's AMX")
def test_they_are_used_where_they_are_exact(monkeypatch):
    assert probe()
    assert "matrix tiles" in Int8Cpu().description
    monkeypatch.setattr(amx, "_is_exact", lambda: False)
    assert not probe()


@pytest.mark.parametrize("missing", sorted(amx.FEATURES))
def test_they_are_not_used_without_an_instruction(monkeypatch, missing):
    monkeypatch.setattr(amx, "cpu_features", lambda: amx.FEATURES - {missing})
    assert not probe()


def test_they_are_not_used_on_other_systems(monkeypatch):
    monkeypatch.setattr(amx, "cpu_features", lambda: amx.FEATURES)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not probe()


def test_they_are_not_used_without_permission(monkeypatch):
    class Refusing:
        def __init__(self, _name: None) -> None:
            pass

        def syscall(self, *arguments: int) -> int:
            assert arguments == (158, 0x1023, 18)
            return -1

    monkeypatch.setattr(amx, "cpu_features", lambda: amx.FEATURES)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(amx.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    assert not probe()
