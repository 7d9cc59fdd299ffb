"""What a run says where it goes on with other code or instructions than it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgesim.code_version import CodeVersion

_COMPUTING = ("torch", "numpy", "numba", "llvmlite")
"""Packages whose versions may change bits."""


def what_is_other(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What may change bits where a run goes on: as it is now, and as it was when the run began.

    Of the instructions only those are compared that models compute with. A machine without a GPU
    computes nothing of a run on the GPUs of a cluster.

    Args:
        began: environment of the run when it began.
        now: the environment in which it goes on.
    """
    here, there = CodeVersion.of(now), CodeVersion.of(began)
    found = [(str(here), str(there))] if here.differs(there) else []
    for name in _COMPUTING:
        is_now, was = (of.get("packages", {}).get(name) for of in (now, began))
        if is_now and was and is_now != was:
            found.append((f"{name} {is_now}", f"{name} {was}"))
    instructions = "gpu" if now["accelerator"] == "cuda" else "torch_cpu_capability"
    for key in ("eight_bit_backend", instructions):
        is_now, was = now[key], began.get(key)
        if is_now and was and is_now != was:
            return [*found, (is_now, was)]
    return found


def notices_of_resume(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is said where a run goes on with other code or other instructions."""
    return [
        f"the run goes on with {here}, and began with {was}: bits may differ from those of an "
        "undisturbed run; resume with what it began with to keep them"
        for here, was in what_is_other(began, now)
    ]


def warnings_of_resumes(environment: Mapping[str, Any]) -> list[str]:
    """What a finished run says of code or instructions with which it went on, each once.

    Args:
        environment: of the run, with those in which it was resumed.
    """
    found = (
        f"the run went on with {here}, and began with {was}: bits may differ from those of an "
        "undisturbed run"
        for now in environment.get("resumed", [])
        for here, was in what_is_other(environment, now)
    )
    return list(dict.fromkeys(found))
