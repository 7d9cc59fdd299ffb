"""What a run was made with, and what repeats it: for whoever must defend a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgesim.code_version import CodeVersion
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import listed
from edgesim.study.tables.table import Table

_SHORT = 16  # characters of a digest, which tell runs apart
_PACKAGES = ("torch", "numpy", "numba", "ray")


def provenance_table(runs: Sequence[ReportedRun]) -> Table:
    """Code, machine, data and digest of each run, one column a run."""
    columns = [_provenance(run) for run in runs]
    labels = list(dict.fromkeys(label for column in columns for label in column))
    rows = tuple((label, *(column.get(label, "") for column in columns)) for label in labels)
    heads = ("", *(run.label for run in runs)) if len(runs) > 1 else ("", "")
    note = (
        "To repeat a run: edgesim run RUN/scenario.yaml --out AGAIN, with this code and the same "
        "data; then edgesim diff RUN AGAIN. On a processor of this kind all bits are the same."
    )
    if any(run.environment.get("own_parts") for run in runs):
        note += " Own files are taken from RUN/own_parts; own packages must be installed."
    return Table("", heads, rows, (note,), prose=frozenset(labels))


def unlike_code(runs: Sequence[ReportedRun]) -> list[str]:
    """A sentence on runs that different code of edgesim has made, or may have made."""
    made: dict[str, tuple[CodeVersion, list[str]]] = {}
    for run in runs:
        code = CodeVersion.of(run.environment)
        made.setdefault(code.digest, (code, []))[1].append(run.label)
    if len(made) < 2:
        return []
    said = "; ".join(f"{listed(names)} by {code}" for code, names in made.values())
    alone = "Different code of edgesim has made these runs, so results may differ for that alone"
    return [f"{alone}: {said}."]


def unlike_processors(runs: Sequence[ReportedRun]) -> list[str]:
    """A sentence on runs that different processors have computed, of those that are on record."""
    made: dict[str, list[str]] = {}
    for run in runs:
        if name := _processor(run.environment):
            made.setdefault(name, []).append(run.label)
    if len(made) < 2:
        return []
    said = "; ".join(f"{listed(labels)} by {name}" for name, labels in made.items())
    alone = "Different processors have computed these runs, so bits may differ for that alone"
    return [f"{alone}: {said}."]


def _provenance(run: ReportedRun) -> dict[str, str]:
    environment = run.environment
    found = {
        "began": environment.get("started_utc", ""),
        "code": str(CodeVersion.of(environment)),
        "packages": _packages(environment),
        "computed with": _arithmetic(environment),
        "digest of settings and data": run.digest[:_SHORT],
        "test samples": environment.get("samples", {}).get("test", "")[:_SHORT],
        "own code and files": _contents(environment),
        "resumed": _resumed(environment),
    }
    return {label: text for label, text in found.items() if text}


def _packages(environment: Mapping[str, Any]) -> str:
    packages = environment.get("packages", {})
    known = [f"{name} {packages[name]}" for name in _PACKAGES if name in packages]
    python = environment.get("python")
    return ", ".join([*([f"Python {python}"] if python else []), *known])


def _arithmetic(environment: Mapping[str, Any]) -> str:
    """Instructions and back end of the steps, and where processes ran."""
    is_gpu = environment.get("accelerator") == "cuda"
    parts = [
        _processor(environment),
        None if is_gpu else environment.get("torch_cpu_capability"),
        environment.get("eight_bit_backend"),
        {"inline": "one process", "ray": "Ray"}.get(environment.get("mode", "")),
        environment.get("platform"),
    ]
    return ", ".join(part for part in parts if part)


def _processor(environment: Mapping[str, Any]) -> str:
    """The GPU, or else the processor, that models computed on; empty if it is not on record."""
    is_gpu = environment.get("accelerator") == "cuda"
    return environment.get("gpu" if is_gpu else "processor") or ""


def _contents(environment: Mapping[str, Any]) -> str:
    """Files and parts of one's own, with the beginnings of their digests."""
    named = {**environment.get("own_parts", {}), **environment.get("files", {})}
    texts = [f"{name} ({digest[:_SHORT]})" for name, digest in named.items()]
    return listed(texts) if texts else ""


def _resumed(environment: Mapping[str, Any]) -> str:
    times = [now["started_utc"] for now in environment.get("resumed", [])]
    return listed(times) if times else ""
