"""Linux boards of the catalog that train on their Arm cores."""

from __future__ import annotations

from edgesim.hardware.catalog.entry import (
    CatalogEntry,
    Figure,
    catalog_entry,
    derived,
    estimated,
    measured,
)
from edgesim.hardware.catalog.radios import wifi_ac, wifi_n

MIB = 2**20

# Products per cycle: the pipes that Arm's software optimization guides of the cores show.
_NO_FP16 = "no fp16 arithmetic before ARMv8.2; the fp32 rate"
_NO_DOT_PRODUCT = "SMULL, SMLAL2 and SADALP, for there is no dot product before ARMv8.2"


def _zero_2w() -> CatalogEntry:
    return catalog_entry(
        name="raspberry-pi-zero-2w",
        description="Raspberry Pi Zero 2 W: four Cortex-A53, 1 GHz, 512 MB, Wi-Fi",
        int8_macs_per_s=_peak(1.0, 16, f"{_NO_DOT_PRODUCT}: one instruction a cycle", cycles=3),
        bits16_macs_per_s=_peak(1.0, 4, _NO_FP16),
        fp32_macs_per_s=_peak(1.0, 4, "Cortex-A53, one 128-bit FMLA a cycle"),
        memory_bytes=derived(
            (425 - 100) * MIB,
            "(425 - 100) MiB: what Linux sees of 512 MB on this chip (J. Geerling, sbc-reviews"
            " issue 98), less a system without desktop",
        ),
        memory_bandwidth=_copied(1300, "sbc-bench at 1 GHz"),
        idle_power_w=measured(0.6, "120 mA at 5 V: CNX Software, 9 December 2021, Qoitech Otii"),
        active_power_w=measured(
            2.1, "HPL on four cores, at the wall: J. Geerling, top500-benchmark issue 26"
        ),
        radio=wifi_n(
            measured(35.7e6, "Raspberry Pi's blog, 14 March 2018: 3B at 2.4 GHz, a similar chip")
        ),
    )


def _pi_4b() -> CatalogEntry:
    return catalog_entry(
        name="raspberry-pi-4b",
        description="Raspberry Pi 4 Model B: four Cortex-A72, 1.5 GHz, 4 GB, Wi-Fi",
        int8_macs_per_s=_peak(1.5, 16, f"{_NO_DOT_PRODUCT}: products on one pipe", cycles=2),
        bits16_macs_per_s=_peak(1.5, 4, _NO_FP16),
        fp32_macs_per_s=_peak(
            1.5, 4, "Cortex-A72, two 64-bit FMLA a cycle; HPL reaches 48 % of it in fp64"
        ),
        memory_bytes=_less_system(4096),
        memory_bandwidth=_copied(2550, "sbc-bench at 1.5 GHz"),
        idle_power_w=measured(2.7, "J. Geerling, pidramble.com, power consumption benchmarks"),
        active_power_w=measured(
            6.4, "stress --cpu 4: J. Geerling, pidramble.com, power consumption benchmarks"
        ),
        radio=wifi_ac(),
    )


def _pi_5() -> CatalogEntry:
    return catalog_entry(
        name="raspberry-pi-5",
        description="Raspberry Pi 5: four Cortex-A76, 2.4 GHz, 4 GB, Wi-Fi",
        int8_macs_per_s=_peak(2.4, 32, "Cortex-A76, two 128-bit SDOT a cycle"),
        bits16_macs_per_s=_peak(2.4, 16, "Cortex-A76, two 128-bit FMLA of fp16 a cycle"),
        fp32_macs_per_s=_peak(
            2.4, 8, "Cortex-A76, two 128-bit FMLA a cycle; HPL reaches 39 % of it in fp64"
        ),
        memory_bytes=_less_system(4096),
        memory_bandwidth=_copied(5705, "sbc-bench issue 106, the same chip on a Compute Module 5"),
        idle_power_w=measured(3.3, "4 GB model: J. Geerling's comparison with 2 GB, August 2024"),
        active_power_w=measured(
            9.8, "4 GB model under stress: J. Geerling's comparison with 2 GB, August 2024"
        ),
        radio=wifi_ac(),
    )


def _orange_pi_cm4() -> CatalogEntry:
    return catalog_entry(
        name="orange-pi-cm4",
        description="Orange Pi CM4 (RK3566): four Cortex-A55 as in gateways, 1.8 GHz, 4 GB, Wi-Fi",
        int8_macs_per_s=_peak(1.8, 16, "Cortex-A55, one 128-bit SDOT a cycle"),
        bits16_macs_per_s=_peak(1.8, 8, "Cortex-A55, one 128-bit FMLA of fp16 a cycle"),
        fp32_macs_per_s=_peak(
            1.8, 4, "Cortex-A55, one 128-bit FMLA a cycle; HPL reaches 19 % of it in fp64"
        ),
        memory_bytes=_less_system(4096),
        memory_bandwidth=_copied(3007.1, "sbc-bench review of the Orange Pi CM4"),
        idle_power_w=estimated(1.3, "1.3 W: boards with four Cortex-A55 idle at 1 to 2 W"),
        active_power_w=measured(
            4.0, "HPL on four cores, at the wall: J. Geerling, top500-benchmark issue 23"
        ),
        radio=wifi_ac(),
    )


def _coral() -> CatalogEntry:
    not_of_the_tpu = "Cortex-A53 of the i.MX 8M; the Edge TPU runs compiled int8 inference, no"
    return catalog_entry(
        name="coral-dev-board",
        description="Coral Dev Board: trains on its four Cortex-A53, 1.5 GHz, 1 GB, Wi-Fi",
        int8_macs_per_s=_peak(
            1.5,
            16,
            f"{not_of_the_tpu} training; {_NO_DOT_PRODUCT}: one instruction a cycle",
            cycles=3,
        ),
        bits16_macs_per_s=_peak(1.5, 4, f"{not_of_the_tpu} training; {_NO_FP16}"),
        fp32_macs_per_s=_peak(
            1.5, 4, f"{not_of_the_tpu} training; one 128-bit FMLA a cycle (Arm Cortex-A53)"
        ),
        memory_bytes=_less_system(1024),
        memory_bandwidth=_copied(2230, "sbc-bench on a HummingBoard Pulse with the same chip"),
        idle_power_w=estimated(3.0, "3 W: boards with an i.MX 8M idle at 2.5 to 3.5 W"),
        active_power_w=estimated(
            3.0 + 1.5, "(3 + 1.5) W: four Cortex-A53 at work as a Raspberry Pi Zero 2 W's"
        ),
        radio=wifi_ac(),
    )


def _peak(ghz: float, products: int, why: str, cycles: int = 1) -> Figure:
    """Rate of four cores with fully used pipelines."""
    per_cycle = f"{products} products" + (f" / {cycles} cycles" if cycles > 1 else "")
    return derived(4 * ghz * 1e9 * products / cycles, f"4 cores x {ghz:g} GHz x {per_cycle}: {why}")


def _copied(mb_per_s: float, where: str) -> Figure:
    """Bandwidth from the rate of memcpy, which reads and writes every byte."""
    return derived(
        2 * mb_per_s * 1e6, f"2 x {mb_per_s:g} MB/s: read and written by memcpy, {where}"
    )


def _less_system(mib: int) -> Figure:
    return derived(
        (mib - 512) * MIB,
        f"({mib} - 512) MiB: less the system, about 220 MiB in use without desktop, and what"
        " firmware and kernel reserve",
    )


BOARDS = (_zero_2w(), _pi_4b(), _pi_5(), _orange_pi_cm4(), _coral())
