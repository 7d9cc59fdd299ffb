"""Phones and a laptop core of the catalog.

Rates of a phone are those of the clock that it sustains for hours without overheating, not of its
peak clock. A phone runs on its battery; a scenario sets `battery_wh: null` for a phone on a
charger.
"""

from __future__ import annotations

from edgesim.hardware.catalog.entry import (
    CatalogEntry,
    Figure,
    catalog_entry,
    derived,
    estimated,
    measured,
)
from edgesim.hardware.catalog.radios import wifi_of_laptops, wifi_of_phones

GIB = 2**30
_SUSTAINED = "big cores at a clock that a phone can hold"


def _mid_range_phone() -> CatalogEntry:
    return catalog_entry(
        name="samsung-galaxy-a54",
        description="Mid-range phone (Galaxy A54, Exynos 1380): four Cortex-A78, 6 GB, Wi-Fi",
        int8_macs_per_s=estimated(
            4 * 2e9 * 32, f"4 cores x 2 GHz x 32 products: {_SUSTAINED}, two 128-bit SDOT a cycle"
        ),
        bits16_macs_per_s=estimated(
            4 * 2e9 * 16, f"4 cores x 2 GHz x 16 products: {_SUSTAINED}, two 128-bit FMLA of fp16"
        ),
        fp32_macs_per_s=estimated(
            4 * 2e9 * 8,
            f"4 cores x 2 GHz x 8 products: {_SUSTAINED} (peak 2.4 GHz), two 128-bit FMLA a cycle",
        ),
        memory_bytes=_left_to_an_app(2),
        memory_bandwidth=derived(
            8 * 4.266e9, "8 B x 4.266 GHz: 64-bit LPDDR4X-4266; one core reaches less"
        ),
        idle_power_w=estimated(0.3, "0.3 W: screen off, awake for Wi-Fi"),
        active_power_w=estimated(
            0.3 + 4 * 0.7, "0.3 W + 4 cores x 0.7 W: Cortex-A78 at 2 GHz in a 5 nm process"
        ),
        radio=wifi_of_phones(),
        battery_j=derived(5 * 3.85 * 3600, "5 Ah x 3.85 V x 3600 s: Galaxy A54 specifications"),
    )


def _flagship_phone() -> CatalogEntry:
    prime = "one Cortex-X3 and four Cortex-A715 and A710 at a clock that a phone can hold"
    return catalog_entry(
        name="samsung-galaxy-s23",
        description="Flagship phone (Galaxy S23, Snapdragon 8 Gen 2): five big cores, 8 GB, Wi-Fi",
        int8_macs_per_s=estimated(
            2e9 * (128 + 4 * 64),
            f"2 GHz x (128 + 4 x 64) products: {prime}; four and two 128-bit SMMLA a cycle",
        ),
        bits16_macs_per_s=estimated(
            2e9 * (32 + 4 * 16),
            f"2 GHz x (32 + 4 x 16) products: {prime}; four and two 128-bit FMLA of fp16 a cycle",
        ),
        fp32_macs_per_s=estimated(
            2e9 * (16 + 4 * 8),
            f"2 GHz x (16 + 4 x 8) products: {prime}; peaks of 3.36 and 2.8 GHz last for seconds",
        ),
        memory_bytes=_left_to_an_app(3),
        memory_bandwidth=derived(
            8 * 8.4e9, "8 B x 8.4 GHz: 64-bit LPDDR5X-8400, Snapdragon 8 Gen 2; one core takes less"
        ),
        idle_power_w=estimated(0.3, "0.3 W: screen off, awake for Wi-Fi"),
        active_power_w=estimated(
            5.0,
            "5 W: what such a case cools; one Cortex-X3 at its peak alone draws 4.9 W (Golden"
            " Reviewer, SPECint 2006)",
        ),
        radio=wifi_of_phones(),
        battery_j=derived(3.9 * 3.85 * 3600, "3.9 Ah x 3.85 V x 3600 s: Galaxy S23 specifications"),
    )


def _laptop_core() -> CatalogEntry:
    pipes = "Apple Firestorm, four 128-bit pipes (dougallj, applecpu)"
    return catalog_entry(
        name="apple-m1-core",
        description="One performance core of a laptop's Apple M1, 3.2 GHz, Wi-Fi 6",
        int8_macs_per_s=derived(
            3.2e9 * 4 * 16, f"3.2 GHz x 4 SDOT x 16 products: {pipes}; without the AMX unit"
        ),
        bits16_macs_per_s=derived(3.2e9 * 4 * 8, f"3.2 GHz x 4 FMLA x 8 products: {pipes}"),
        fp32_macs_per_s=derived(3.2e9 * 4 * 4, f"3.2 GHz x 4 FMLA x 4 products: {pipes}"),
        memory_bytes=estimated(4 * GIB, "4 GiB: half of the smallest model's"),
        memory_bandwidth=measured(58e9, "one core reading: AnandTech, Mac mini M1, November 2020"),
        idle_power_w=estimated(0.3, "0.3 W: the chip and its memory, without the laptop around"),
        active_power_w=measured(
            3.7, "package, Cinebench R23 on one core: notebookcheck.net, Apple M2 analysis"
        ),
        radio=wifi_of_laptops(),
    )


def _left_to_an_app(gib: int) -> Figure:
    return estimated(gib * GIB, f"{gib} GiB: what Android leaves to one app in the background")


PHONES_AND_LAPTOPS = (_mid_range_phone(), _flagship_phone(), _laptop_core())
