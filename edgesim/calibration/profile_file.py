"""The file of a calibration: a scenario whose devices have the measured profile.

Each figure has its source beside it, as a comment. What was not measured is taken from a profile of
the catalog, and a comment says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgesim.calibration.calibrate import Calibration
from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.fit import Fit
from edgesim.code_version import code_version
from edgesim.hardware.profiles import LayerTime
from edgesim.quant.backends import describe_backend
from edgesim.storage.files import LocalFiles

_MIB = 2**20
_PARTS = (  # key of a scenario, field of a time, its unit in seconds
    ("call_us", "call_s", 1e-6),
    ("ps_per_mac", "s_per_mac", 1e-12),
    ("ns_per_entry", "s_per_entry", 1e-9),
    ("ns_per_far_entry", "s_per_far_entry", 1e-9),
    ("ns_per_weight", "s_per_weight", 1e-9),
)


def profile_text(found: Calibration, name: str, based_on: str) -> str:
    """A scenario, as YAML, with the profile of a calibration.

    Args:
        found: the calibration.
        name: of the profile.
        based_on: profile of the catalog that has what was not measured.
    """
    return "\n".join(
        [*_head(found, based_on), *_profile(found, name, based_on), *_rest(found, name)]
    )


def check_place(path: Path) -> None:
    """Check that a file can be written, before minutes are spent on what it will hold.

    Raises:
        CalibrationError: it can't.
    """
    if path.exists():
        raise CalibrationError(f"--out {path}: exists; choose another name")
    if not path.parent.is_dir():
        raise CalibrationError(f"--out {path}: there is no folder {path.parent}; make it first")


def write_profile(path: Path, text: str) -> None:
    """Write the file as a whole, or not at all.

    Raises:
        CalibrationError: it can't be written.
    """
    try:
        LocalFiles(path.parent).create(path.name, text.encode())
    except FileExistsError as error:
        raise CalibrationError(f"--out {path}: exists; choose another name") from error
    except OSError as error:
        raise CalibrationError(f"--out {path}: can't be written ({error.strerror})") from error


def _head(found: Calibration, based_on: str) -> Iterator[str]:
    yield f"# A device as `edgesim calibrate` of {code_version()} measured it, on one thread:"
    yield f"# {found.machine}."
    yield "# To use it elsewhere, copy the profile to hardware.profiles of your scenario, and"
    yield "# name it in fleet.profile. Figures are of this machine with what else ran on it."
    yield f"# 8-bit arithmetic: {describe_backend(found.backend)}, as runs on it choose."
    if found.backend == "reference":
        yield "# It computes 8-bit products as floats: here they are no faster than fp32."
    yield f"# Not measured, and taken from {based_on}: {', '.join(_missing(found))}."
    yield "name: calibrated"


def _missing(found: Calibration) -> Iterator[str]:
    if found.power is None:
        yield f"idle and active power ({found.no_power})"
    if found.peer is None:
        yield "the radio's rate (no --peer was named)"
    yield "the radio's energy"


def _profile(found: Calibration, name: str, based_on: str) -> Iterator[str]:
    turns = str(found.turns)
    yield "hardware:"
    yield "  profiles:"
    yield f"    - name: '{name}'"  # quoted: a name may be a number, or on
    yield f"      description: '{found.machine.replace(chr(39), '')}'"
    yield f"      based_on: {based_on}"
    figures = [
        ("fp32_gmacs_per_s", found.fp32_macs_per_s / 1e9, f"a 3x3 convolution, {turns}"),
        (
            "bits16_gmacs_per_s",
            found.bits16_macs_per_s / 1e9,
            f"the same in bfloat16, {turns}",
        ),
        (
            "int8_gmacs_per_s",
            found.int8_macs_per_s / 1e9,
            f"the same in 8-bit codes, {turns}",
        ),
        (
            "memory_gbytes_per_s",
            found.memory_bandwidth / 1e9,
            f"a + b of long vectors, {turns}",
        ),
        (
            "elementwise_gops_per_s",
            found.elementwise_ops_per_s / 1e9,
            f"a + b in caches, {turns}",
        ),
        ("memory_mib", found.memory_bytes / _MIB, "MemAvailable of the kernel"),
    ]
    if found.power is not None:
        figures += [
            ("idle_power_w", found.power.idle_w, "processor packages alone, by RAPL, waiting"),
            ("active_power_w", found.power.active_w, "the same, one core computing"),
        ]
    for key, value, source in figures:
        yield f"      {key}: {_figure(value)}  # measured: {source}"
    yield "      battery_wh: plugged_in"
    if found.peer is not None:
        mbps = found.peer.bandwidth_bps / 1e6
        yield f"      radio: {{name: network, bandwidth_mbps: {_figure(mbps)}}}  # measured: TCP"
    yield f"      layer_times:  # measured: steps of small networks, {turns}, and least squares"
    for fit in found.fits:
        yield f"        - {{{_time(fit.time)}}}  # {_quality(fit)}"


def _time(time: LayerTime) -> str:
    parts = [f"layer: {time.kind}"]
    for key, field, unit in _PARTS:
        value = getattr(time, field) / unit
        if value:
            parts.append(f"{key}: {_figure(value)}")
    return ", ".join(parts)


def _figure(value: float) -> str:
    """Five digits; with a point before an exponent, without which YAML takes it for text."""
    text = f"{value:.5g}"
    return text if "." in text else text.replace("e", ".0e")


def _quality(fit: Fit) -> str:
    return f"{fit.num_networks} networks, the worst {100 * fit.worst:.0f} % off"


def _rest(found: Calibration, name: str) -> Iterator[str]:
    if found.peer is not None:
        latency_ms = 1e3 * found.peer.latency_s
        yield f"network: {{latency_ms: {_figure(latency_ms)}}}  # measured: half a round trip"
    yield f"fleet: {{devices: 4, profile: '{name}'}}"
    yield "topology: {kind: ring}"
    yield "data: {source: digits, partition: {kind: iid}, batch_size: 16}"
    yield "model: {name: small_cnn}"
    yield "training: {epochs: 2, optimizer: {lr: 0.05}}"
    yield "gossip: {algorithm: choco, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.1}}"
    yield ""
