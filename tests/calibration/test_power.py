"""Counters of energy, in a folder that looks like the kernel's."""

from __future__ import annotations

import pytest

from edgesim.calibration.power import EnergyCounter, find_counter


def zone(folder, name, microjoules, what="package-0"):
    path = folder / name
    path.mkdir()
    (path / "name").write_text(f"{what}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text("1000000\n")
    return path


def test_packages_are_added_and_their_parts_left_out(tmp_path):
    zone(tmp_path, "intel-rapl:0", 5)
    zone(tmp_path, "intel-rapl:1", 7, "package-1")
    zone(tmp_path, "intel-rapl:2", 19, "psys")
    zone(tmp_path, "intel-rapl-mmio:0", 5)
    zone(tmp_path, "intel-rapl:0:0", 3)
    (tmp_path / "intel-rapl").mkdir()
    counter = find_counter(tmp_path)
    assert isinstance(counter, EnergyCounter)
    assert [path.name for path in counter.zones] == ["intel-rapl:0", "intel-rapl:1"]


def test_power_is_energy_by_time_also_when_a_counter_wraps(tmp_path, monkeypatch):
    """0.9 J to 0.1 J of a counter that ends at 1 J is 0.2 J; in 2 s that is 0.1 W."""
    package = zone(tmp_path, "intel-rapl:0", 900_000)
    counter = find_counter(tmp_path)
    moments = iter([10.0, 12.0])
    monkeypatch.setattr("edgesim.calibration.power.perf_counter", lambda: next(moments))
    power_w = counter.power_w(lambda _: (package / "energy_uj").write_text("100000\n"))
    assert power_w == pytest.approx(0.1)


def test_counters_that_wrap_often_are_looked_at_in_time(tmp_path, monkeypatch):
    """Each turn uses 0.6 J of counters that end at 1 J: 1.8 J in 3 s."""
    package = zone(tmp_path, "intel-rapl:0", 500_000)
    moments = iter([0.0, 3.0])
    monkeypatch.setattr("edgesim.calibration.power.perf_counter", lambda: next(moments))

    def run(look):
        for microjoules in (100_000, 700_000, 300_000):
            (package / "energy_uj").write_text(f"{microjoules}\n")
            look()

    assert find_counter(tmp_path).power_w(run) == pytest.approx(0.6)


def test_a_kernel_without_counters_is_said_so(tmp_path):
    assert find_counter(tmp_path) == f"{tmp_path} has no counters of processor packages"


def test_counters_that_tell_no_number_are_said_so(tmp_path):
    path = zone(tmp_path, "intel-rapl:0", 5)
    (path / "energy_uj").unlink()
    assert "can't be read (No such file or directory)" in find_counter(tmp_path)
