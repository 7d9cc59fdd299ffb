"""A calibration on tiny networks: what is in it, and the file that it becomes."""

from __future__ import annotations

import re

import pytest
import yaml

from edgesim.assembly.build import quantization_settings
from edgesim.assembly.equipment import device_profiles
from edgesim.calibration import calibrate as calibrate_module
from edgesim.calibration.calibrate import Power, calibrate
from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.network import Reached
from edgesim.calibration.profile_file import profile_text
from edgesim.calibration.rates import available_bytes
from edgesim.calibration.turns import Turns
from edgesim.hardware.catalog import PROFILES
from edgesim.hardware.layer_kinds import LAYER_KINDS
from edgesim.quant.backends import describe_backend
from edgesim.quant.kernels.products import native
from edgesim.quant.reference import Reference
from edgesim.scenario import load_scenario

NOTES = []


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    NOTES.clear()
    return calibrate(
        lambda *note: NOTES.append(note),
        quantization_settings(),
        turns=Turns(1),
        sizes="tiny",
        powercap=tmp_path_factory.mktemp("none"),
    )


def profile_of(text, tmp_path):
    path = tmp_path / "found.yaml"
    path.write_text(text)
    return device_profiles(load_scenario(path))[0]


def test_every_kind_of_layer_is_timed_once(found):
    assert sorted(fit.time.kind for fit in found.fits) == sorted(LAYER_KINDS)


def test_all_figures_are_above_zero(found):
    for figure in (
        found.fp32_macs_per_s,
        found.bits16_macs_per_s,
        found.int8_macs_per_s,
        found.memory_bandwidth,
        found.elementwise_ops_per_s,
        found.memory_bytes,
        *(fit.num_networks for fit in found.fits),
    ):
        assert figure > 0


def test_progress_goes_from_the_first_part_to_the_last(found):
    done, totals, parts = zip(*NOTES, strict=True)
    assert list(done) == list(range(totals[0]))
    assert set(totals) == {totals[0]}
    assert {"memory bandwidth", "convolution"} <= set(parts)


def test_the_file_holds_what_was_measured(found, tmp_path):
    """To the five digits of the file."""
    profile = profile_of(profile_text(found, "mine", "raspberry-pi-5"), tmp_path)
    assert profile.name == "mine"
    assert profile.fp32_macs_per_s == pytest.approx(found.fp32_macs_per_s, rel=1e-4)
    assert profile.bits16_macs_per_s == pytest.approx(found.bits16_macs_per_s, rel=1e-4)
    assert profile.int8_macs_per_s == pytest.approx(found.int8_macs_per_s, rel=1e-4)
    assert profile.memory_bandwidth == pytest.approx(found.memory_bandwidth, rel=1e-4)
    assert profile.elementwise_ops_per_s == pytest.approx(found.elementwise_ops_per_s, rel=1e-4)
    assert profile.memory_bytes == pytest.approx(found.memory_bytes, rel=1e-4)
    assert profile.battery_j is None
    for fit, time in zip(found.fits, profile.layer_times, strict=True):
        assert time.kind == fit.time.kind
        for part in ("call_s", "s_per_mac", "s_per_entry", "s_per_far_entry", "s_per_weight"):
            assert getattr(time, part) == pytest.approx(getattr(fit.time, part), rel=1e-4)


def test_every_figure_says_that_it_was_measured_and_what_was_not(found):
    text = profile_text(found, "mine", "raspberry-pi-5")
    (own,) = yaml.safe_load(text)["hardware"]["profiles"]
    for key in own.keys() - {"name", "description", "based_on", "battery_wh"}:
        assert re.search(rf"^ +{key}:.*# measured: ", text, re.MULTILINE), key
    assert "# Not measured, and taken from raspberry-pi-5: idle and active power (" in text
    assert "the radio's rate (no --peer was named), the radio's energy." in text


def test_what_was_not_measured_is_that_of_the_profile_below(found, tmp_path):
    profile = profile_of(profile_text(found, "mine", "jetson-nano"), tmp_path)
    below = PROFILES["jetson-nano"].profile
    assert (profile.idle_power_w, profile.radio) == (below.idle_power_w, below.radio)


def test_power_and_network_are_in_the_file_where_they_were_measured(found, tmp_path):
    from dataclasses import replace

    all_of_it = replace(
        found,
        power=Power(idle_w=1.5, active_w=4.0),
        no_power="",
        peer=Reached(bandwidth_bps=2e7, latency_s=0.003),
    )
    text = profile_text(all_of_it, "mine", "raspberry-pi-5")
    profile = profile_of(text, tmp_path)
    assert (profile.idle_power_w, profile.active_power_w) == (1.5, 4.0)
    assert profile.radio.bandwidth_bps == 2e7
    assert yaml.safe_load(text)["network"] == {"latency_ms": 3.0}


def test_what_is_timed_in_8_bits_is_what_runs_compute_with(found, tmp_path, monkeypatch):
    """On Arm, and wherever else the integer kernels cannot work, it is the plain back end."""
    said = f"# 8-bit arithmetic: {describe_backend(found.backend)}, as runs on it choose."
    assert said in profile_text(found, "mine", "raspberry-pi-5").splitlines()
    monkeypatch.setattr(native, "multiply_add_is_native", lambda: False)
    used = []
    convolve = Reference.convolve
    monkeypatch.setattr(
        Reference, "convolve", lambda self, *args: used.append(args) or convolve(self, *args)
    )
    monkeypatch.setattr(calibrate_module, "timed", lambda *_: ())
    monkeypatch.setattr(calibrate_module, "fit_times", lambda *_: ())
    plain = calibrate(
        lambda *_: None, quantization_settings(), turns=Turns(1), sizes="tiny", powercap=tmp_path
    )
    assert used, "of which the rate is"
    assert plain.int8_macs_per_s > 0
    assert (
        "# 8-bit arithmetic: reference (torch operations on whole numbers in float32), as runs on "
        "it choose.\n# It computes 8-bit products as floats: "
    ) in profile_text(plain, "mine", "raspberry-pi-5")


def test_no_turns_are_refused():
    with pytest.raises(CalibrationError, match="--rounds is 0"):
        calibrate(lambda *_: None, quantization_settings(), turns=Turns(0))


def test_memory_is_what_the_kernel_calls_available(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    assert available_bytes(meminfo) == 7 * 1024
    meminfo.write_text("MemTotal: 9 kB\n")
    with pytest.raises(CalibrationError, match="no MemAvailable"):
        available_bytes(meminfo)
    with pytest.raises(CalibrationError, match="calibrations need Linux"):
        available_bytes(tmp_path / "none")
