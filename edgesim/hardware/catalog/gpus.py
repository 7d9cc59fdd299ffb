"""Devices of the catalog that train on a GPU of Nvidia's."""

from __future__ import annotations

from edgesim.hardware.catalog.entry import (
    CatalogEntry,
    Figure,
    catalog_entry,
    derived,
    estimated,
    measured,
    vendor,
)
from edgesim.hardware.catalog.radios import gigabit_ethernet, wifi_of_laptops

MIB = 2**20


def _jetson_nano() -> CatalogEntry:
    return catalog_entry(
        name="jetson-nano",
        description="Jetson Nano 4 GB, 10 W mode: 128 Maxwell cores, 922 MHz, Ethernet",
        int8_macs_per_s=derived(
            128 * 921.6e6,
            "128 cores x 921.6 MHz: no 8-bit dot product on compute capability 5.3; exact products"
            " take the fp32 rate",
        ),
        bits16_macs_per_s=vendor(236e9, "472 GFLOPS in fp16, two to a product: Jetson Nano"),
        fp32_macs_per_s=derived(
            128 * 921.6e6, "128 cores x 921.6 MHz: one FMA a core and cycle, half of fp16"
        ),
        memory_bytes=_shared_memory(4096),
        memory_bandwidth=vendor(25.6e9, "64-bit LPDDR4 at 1600 MHz: Jetson Nano data sheet"),
        idle_power_w=estimated(2.0, "2 W: development kit without desktop, nothing attached"),
        active_power_w=vendor(
            10.0, "budget of the 10 W mode, the module's: Jetson Nano data sheet"
        ),
        radio=gigabit_ethernet(),
    )


def _xavier_nx() -> CatalogEntry:
    return catalog_entry(
        name="jetson-xavier-nx",
        description="Jetson Xavier NX 8 GB, 15 W mode: 384 Volta cores, 1.1 GHz, Ethernet",
        int8_macs_per_s=derived(
            48 * 1.1e9 * 128,
            "48 tensor cores x 1.1 GHz x 128 products: 13.5 of the vendor's 21 TOPS, without its"
            " two accelerators for inference",
        ),
        bits16_macs_per_s=derived(
            48 * 1.1e9 * 64, "48 tensor cores x 1.1 GHz x 64 products: Volta, data sheet's clock"
        ),
        fp32_macs_per_s=derived(
            384 * 1.1e9, "384 cores x 1.1 GHz: one FMA a core and cycle, data sheet DA-09366"
        ),
        memory_bytes=_shared_memory(8192),
        memory_bandwidth=vendor(59.7e9, "128-bit LPDDR4x: Jetson Xavier NX"),
        idle_power_w=estimated(4.0, "4 W: development kit without desktop, nothing attached"),
        active_power_w=vendor(15.0, "budget of the 15 W mode, the module's: Jetson Xavier NX"),
        radio=gigabit_ethernet(),
    )


def _orin_nano() -> CatalogEntry:
    return catalog_entry(
        name="jetson-orin-nano",
        description="Jetson Orin Nano 8 GB, 15 W mode: 1024 Ampere cores, 625 MHz, Ethernet",
        int8_macs_per_s=derived(
            32 * 625e6 * 512,
            "32 tensor cores x 625 MHz x 512 products: the vendor's 40 TOPS count zeros skipped by"
            " 2:4 sparsity and two operations to a product",
        ),
        bits16_macs_per_s=derived(
            32 * 625e6 * 256, "32 tensor cores x 625 MHz x 256 products: half of int8's"
        ),
        fp32_macs_per_s=derived(
            1024 * 625e6, "1024 cores x 625 MHz: one FMA a core and cycle, without TF32"
        ),
        memory_bytes=_shared_memory(8192),
        memory_bandwidth=vendor(68e9, "128-bit LPDDR5: Jetson Orin Nano, before the Super modes"),
        idle_power_w=estimated(
            4.5,
            "4.5 W: development kit as shipped; 2.6 W was measured with all that can be switched"
            " off (Nvidia forum, topic 348662, Joulescope)",
        ),
        active_power_w=vendor(15.0, "budget of the 15 W mode, the module's: Jetson Orin Nano"),
        radio=gigabit_ethernet(),
    )


def _rtx_3050_laptop() -> CatalogEntry:
    where = "torch-performance-test-data issue 57, PyTorch 2.8, matrices of 4096 and more"
    return catalog_entry(
        name="rtx-3050-laptop",
        description="GeForce RTX 3050 laptop GPU: 2048 Ampere cores, 4 GB, and its laptop, Wi-Fi 6",
        int8_macs_per_s=derived(
            2 * 7.585e12, "2 x 7.585 TMAC/s: Ampere's tensor cores double fp16, measured as below"
        ),
        bits16_macs_per_s=measured(7.585e12, f"15.17 TFLOPS: {where}"),
        fp32_macs_per_s=measured(2.58e12, f"5.16 TFLOPS without TF32: {where}"),
        memory_bytes=_card_memory(4096),
        memory_bandwidth=vendor(192e9, "128-bit GDDR6 at 12 Gbit/s: GeForce RTX 3050 laptop"),
        idle_power_w=estimated(10.0, "10 W: laptop with its screen off, GPU clocked down"),
        active_power_w=estimated(
            60 + 15, "(60 + 15) W: GPU within its 35 to 80 W, and the rest of the laptop"
        ),
        radio=wifi_of_laptops(),
    )


def _t4() -> CatalogEntry:
    where = "torch-performance-test-data pull request 29, PyTorch 2.6; 70 W keep it below its peaks"
    return catalog_entry(
        name="nvidia-t4",
        description="Nvidia T4, a 70 W card of edge servers: 2560 Turing cores, 16 GB, Ethernet",
        int8_macs_per_s=derived(
            2 * 21.355e12, "2 x 21.355 TMAC/s: Turing's tensor cores double fp16, measured as below"
        ),
        bits16_macs_per_s=measured(21.355e12, f"42.71 TFLOPS: {where}"),
        fp32_macs_per_s=measured(2.215e12, f"4.43 TFLOPS: {where}"),
        memory_bytes=_card_memory(16384),
        memory_bandwidth=vendor(320e9, "256-bit GDDR6 at 10 Gbit/s: Nvidia T4 data sheet"),
        idle_power_w=estimated(10.0, "10 W: the card alone, as nvidia-smi shows it in state P8"),
        active_power_w=vendor(70.0, "board power, the card alone: Nvidia T4 data sheet"),
        radio=gigabit_ethernet(),
    )


def _shared_memory(mib: int) -> Figure:
    return derived(
        (mib - 1024) * MIB,
        f"({mib} - 1024) MiB: less the system and the CUDA context, in memory that both share",
    )


def _card_memory(mib: int) -> Figure:
    return derived((mib - 512) * MIB, f"({mib} - 512) MiB: less the CUDA context and reserves")


GPUS = (_jetson_nano(), _xavier_nx(), _orin_nano(), _rtx_3050_laptop(), _t4())
