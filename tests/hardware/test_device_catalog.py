import math
import re
from dataclasses import fields

import pytest

from edgesim.hardware.catalog import PROFILES
from edgesim.hardware.profiles import DeviceProfile, Radio
from edgesim.hardware.work import Work

ENTRIES = tuple(PROFILES.values())

EXPECTED = {
    "esp32-s3",
    "gap9",
    "raspberry-pi-zero-2w",
    "raspberry-pi-4b",
    "raspberry-pi-5",
    "coral-dev-board",
    "jetson-nano",
    "jetson-orin-nano",
}

each_device = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.profile.name)


def numbers_of(profile: DeviceProfile) -> dict[str, float]:
    """Every number of a profile and of its radio, found by type and not by a list of names."""
    found: dict[str, float] = {}
    for prefix, part in (("", profile), ("radio.", profile.radio)):
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found[prefix + field.name] = value
    return found


def test_the_catalog_holds_at_least_fourteen_devices_and_those_that_were_asked_for():
    assert len(PROFILES) >= 14
    assert set(PROFILES) >= EXPECTED


def test_every_class_of_device_is_there_from_microcontroller_to_gpu():
    descriptions = " ".join(entry.profile.description for entry in ENTRIES)
    for kind in ("Cortex-M7", "Mid-range phone", "Flagship phone", "laptop's", "GPU", "gateways"):
        assert kind in descriptions


@each_device
def test_a_device_is_listed_under_its_own_name(entry):
    assert PROFILES[entry.profile.name] is entry
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.profile.name)
    assert entry.profile.description


@each_device
def test_every_number_has_a_source_and_no_source_is_without_its_number(entry):
    assert set(entry.sources) == set(numbers_of(entry.profile))
    for source in entry.sources.values():
        assert source.evidence in {"measured", "vendor", "derived"}
        assert len(source.citation) > 20
        assert source.citation.isascii()


@each_device
def test_every_number_is_positive_and_finite(entry):
    for key, number in numbers_of(entry.profile).items():
        assert number > 0, key
        assert math.isfinite(number), key


@each_device
def test_numbers_are_in_the_range_of_their_kind(entry):
    profile = entry.profile
    assert profile.int8_macs_per_s >= profile.fp32_macs_per_s
    assert profile.bits16_macs_per_s >= profile.fp32_macs_per_s
    assert profile.idle_power_w < profile.active_power_w <= 100
    assert 4 * 2**20 <= profile.memory_bytes <= 16 * 2**30
    assert 1e8 <= profile.memory_bandwidth <= 1e12
    # From the energy of an arithmetic unit alone to that of a microcontroller's whole board.
    assert 1e-12 < profile.active_power_w / profile.fp32_macs_per_s < 5e-9
    assert 1e6 <= profile.radio.bandwidth_bps <= 1e9
    assert 1e-9 < profile.radio.receive_j_per_byte < 1e-6
    assert 1e-9 < profile.radio.send_j_per_byte < 1e-6


@each_device
def test_only_a_cable_carries_both_ways_at_once(entry):
    radio: Radio = entry.profile.radio
    assert radio.is_half_duplex == ("Ethernet" not in radio.name)


@pytest.mark.parametrize("name", ["samsung-galaxy-a54", "samsung-galaxy-s23"])
def test_phones_run_on_a_battery(name):
    battery_j = PROFILES[name].profile.battery_j
    assert battery_j is not None
    assert 10 < battery_j / 3600 < 25  # watt-hours of a phone


# J. Geerling's HPL results, top500-benchmark: fp64 FLOP/s on all cores. The reading is independent
# of the profiles: a vector holds half as many fp64 as fp32 and a product counts twice, so the fp64
# FLOP rate of a core's pipes equals their fp32 MAC rate.
HPL_FLOPS = {
    "raspberry-pi-zero-2w": 0.3703e9,
    "raspberry-pi-4b": 11.433e9,  # Compute Module 4 at the same 1.5 GHz
    "raspberry-pi-5": 30.249e9,
    "orange-pi-cm4": 5.604e9,
}


@pytest.mark.parametrize("name", HPL_FLOPS)
def test_peaks_lie_above_what_linpack_reaches(name):
    reached = HPL_FLOPS[name] / PROFILES[name].profile.fp32_macs_per_s
    # The Zero 2 W's 512 MB force a problem that lives from memory: 2 %.
    assert 0.02 < reached < 0.7


def test_resnet20_on_a_raspberry_pi_4b_takes_half_as_long_in_8_bit():
    # 3 x 40.81 M x 32 MACs (reference.md, section 6) at 24 GMAC/s: 163 ms; at two products per fp32
    # one, half.
    macs = 3 * 40_810_000 * 32
    profile = PROFILES["raspberry-pi-4b"].profile
    assert profile.compute_s(Work(macs_fp32=macs)) == pytest.approx(3.917_76 / 24)
    assert profile.compute_s(Work(macs_int8=macs)) == pytest.approx(3.917_76 / 48)


# -- derived numbers -------------------------------------------------------------------------

UNITS = {
    "GHz": 1e9,
    "MHz": 1e6,
    "TMAC/s": 1e12,
    "GB/s": 1e9,
    "MB/s": 1e6,
    "Mbit/s": 1e6,
    "MiB": 2**20,
    "GiB": 2**30,
    "mA": 1e-3,
    "mW": 1e-3,
    "A": 1,
    "Ah": 1,
    "V": 1,
    "W": 1,
    "B": 1,
    "bit": 1,
    "s": 1,
}
# Words that say what a number counts; they change nothing.
COUNTED = {"cores", "tensor", "products", "product", "cycles", "edges", "SDOT", "FMLA"}
TOKEN = re.compile(r"[()+-]|[\w./]+")


def arithmetic_of(citation: str) -> float:
    """What the arithmetic before the first colon comes to, each unit taken with its number."""
    text = citation.removeprefix("Estimate: ").partition(": ")[0]
    expression: list[str] = []
    for token in TOKEN.findall(text):
        if re.fullmatch(r"\d+(\.\d+)?", token):
            expression.append(token)
        elif token in UNITS:
            # In parentheses with its number: / 20 Mbit/s divides by both.
            start = _start_of_last_operand(expression)
            expression[start:] = ["(", *expression[start:], f"*{UNITS[token]!r}", ")"]
        elif token == "x":
            expression.append("*")
        elif token in {"+", "-", "/", "(", ")"}:
            expression.append(token)
        else:
            assert token in COUNTED, f"{token!r} in {citation!r}"
    return float(eval(" ".join(expression), {"__builtins__": {}}))  # digits and operators only


def _start_of_last_operand(expression: list[str]) -> int:
    if expression[-1] != ")":
        return len(expression) - 1
    depth = 0
    for index in range(len(expression) - 1, -1, -1):
        depth += (expression[index] == ")") - (expression[index] == "(")
        if depth == 0:
            return index
    raise AssertionError(expression)


def test_arithmetic_of_citations_is_read_with_units():
    assert arithmetic_of("4 cores x 1.5 GHz x 16 products / 2 cycles: why") == 48e9
    assert arithmetic_of("(283 - 33) mA x 3 V x 8 bit / 20 Mbit/s: why") == 0.75 * 8 / 20e6
    assert arithmetic_of("Estimate: 0.3 W + 4 cores x 0.7 W: why") == 0.3 + 4 * 0.7
    assert arithmetic_of("(4096 - 512) MiB: why") == 3584 * 2**20


@each_device
def test_derived_numbers_are_what_their_citation_computes(entry):
    for key, source in entry.sources.items():
        if source.evidence == "derived":
            assert arithmetic_of(source.citation) == pytest.approx(entry.value(key), rel=1e-9), key


@each_device
def test_only_derived_numbers_are_estimates(entry):
    for source in entry.sources.values():
        assert source.evidence == "derived" or "Estimate" not in source.citation


def test_most_numbers_do_not_rest_on_an_estimate():
    sources = [source for entry in ENTRIES for source in entry.sources.values()]
    estimates = sum(source.citation.startswith("Estimate: ") for source in sources)
    assert estimates < len(sources) / 2


# -- the table of one device -----------------------------------------------------------------


@each_device
def test_rows_show_every_number_once_with_its_source(entry):
    rows = entry.rows()
    assert len(rows) == len(numbers_of(entry.profile))
    assert len({row.quantity for row in rows}) == len(rows)
    assert {(row.evidence, row.citation) for row in rows} == {
        (source.evidence, source.citation) for source in entry.sources.values()
    }


def test_rows_write_values_with_units():
    shown = {row.quantity: row.value for row in PROFILES["raspberry-pi-4b"].rows()}
    assert shown == {
        "int8 rate": "48 GMAC/s",
        "16-bit float rate": "24 GMAC/s",
        "fp32 rate": "24 GMAC/s",
        "memory": "3584 MiB",
        "memory bandwidth": "5.1 GB/s",
        "idle power": "2.7 W",
        "active power": "6.4 W",
        "radio bandwidth": "102 Mbit/s",
        "radio, sending": "94.12 nJ/B",  # 1.2 W over 12.75 MB/s
        "radio, receiving": "31.37 nJ/B",  # 0.4 W
    }


def test_rows_show_the_battery_of_those_that_have_one():
    rows = {row.quantity: row for row in PROFILES["samsung-galaxy-a54"].rows()}
    assert rows["battery"].value == "69.3 kJ"  # 5 Ah x 3.85 V = 19.25 Wh
    assert rows["idle power"].value == "300 mW"
