"""Microcontrollers of the catalog: a few hundred milliwatts and less, megabytes of memory."""

from __future__ import annotations

from edgesim.hardware.catalog.entry import (
    CatalogEntry,
    catalog_entry,
    derived,
    estimated,
    vendor,
)
from edgesim.hardware.catalog.radios import bluetooth_low_energy, esp32_s3_wifi, wifi_n

MIB = 2**20


def _portenta_h7() -> CatalogEntry:
    return catalog_entry(
        name="arduino-portenta-h7",
        description="Cortex-M7 microcontroller (STM32H747, 480 MHz) with 8 MB SDRAM and Wi-Fi",
        int8_macs_per_s=derived(
            480e6 * 2,
            "480 MHz x 2 products: SMLAD on codes widened to 16 bits; CMSIS-NN reaches 0.58 a"
            " cycle (249 MOP/s at 216 MHz: Lai, Suda, Chandra, arXiv 1801.06601)",
        ),
        bits16_macs_per_s=derived(
            480e6, "480 MHz x 1 product: no 16-bit float arithmetic in Arm's FPv5; the fp32 rate"
        ),
        fp32_macs_per_s=derived(
            480e6, "480 MHz x 1 product: one VFMA.F32 a cycle, Arm Cortex-M7 with FPv5"
        ),
        memory_bytes=vendor(
            8 * MIB,
            "8 MB SDRAM, all of it: Arduino ABX00042 data sheet; code lies in flash, stack in SRAM",
        ),
        memory_bandwidth=derived(
            2 * 100e6, "2 B x 100 MHz: 16-bit SDRAM behind the STM32H7's memory controller"
        ),
        idle_power_w=estimated(
            48e-3 * 3.3 + 0.01,
            "48 mA x 3.3 V + 0.01 W: STM32H7 asleep with its clocks on, SDRAM and Wi-Fi saving",
        ),
        active_power_w=estimated(
            134e-3 * 3.3 + 0.08,
            "134 mA x 3.3 V + 0.08 W: STM32H7 at about 0.28 mA/MHz, and SDRAM at work",
        ),
        radio=wifi_n(
            estimated(20e6, "20 Mbit/s: 65 Mbit/s radio (Murata 1DX); what an ESP32-S3 reaches")
        ),
    )


def _esp32_s3() -> CatalogEntry:
    sheet = "Espressif, ESP32-S3 data sheet, modem sleep at 240 MHz"
    return catalog_entry(
        name="esp32-s3",
        description="ESP32-S3-WROOM-1-N16R8: two Xtensa LX7 cores, 240 MHz, 8 MB PSRAM, Wi-Fi",
        int8_macs_per_s=derived(
            2 * 240e6 * 16,
            "2 cores x 240 MHz x 16 products: 128-bit EE.VMULAS.S8; ESP-NN reaches 0.9 a cycle and"
            " core from PSRAM (1x1 convolution of 64 channels: 409600 products in 461398 cycles)",
        ),
        bits16_macs_per_s=derived(
            2 * 240e6, "2 cores x 240 MHz: no 16-bit float arithmetic; the fp32 rate"
        ),
        fp32_macs_per_s=derived(
            2 * 240e6,
            "2 cores x 240 MHz x 1 product: one MADD.S a cycle; ESP-DSP's dot product of 256 takes"
            " 432 cycles",
        ),
        memory_bytes=vendor(8 * MIB, "octal PSRAM of the module, all of it; code lies in flash"),
        memory_bandwidth=derived(
            1 * 2 * 80e6, "1 B x 2 edges x 80 MHz: octal PSRAM, ESP32-S3-WROOM-1 data sheet"
        ),
        idle_power_w=derived(
            32.9e-3 * 3.3,
            f"32.9 mA x 3.3 V: both cores waiting, {sheet}; 32.3 mA was measured on a DevKitC"
            " (ComNets Bremen, MoleNet V6)",
        ),
        active_power_w=derived(
            107.9e-3 * 3.3, f"107.9 mA x 3.3 V: both cores on 128-bit instructions, {sheet}"
        ),
        radio=esp32_s3_wifi(),
    )


def _gap9() -> CatalogEntry:
    return catalog_entry(
        name="gap9",
        description="GreenWaves GAP9: 9 RISC-V cores, 370 MHz, 32 MB PSRAM, Bluetooth LE",
        int8_macs_per_s=derived(
            9 * 370e6 * 4,
            "9 cores x 370 MHz x 4 products: cores alone, Linley Newsletter, 14 January 2020; the"
            " NE16 convolution engine (32.2 GMAC/s) is built for inference",
        ),
        bits16_macs_per_s=derived(
            9 * 370e6 * 2,
            "9 cores x 370 MHz x 2 products: Linley Newsletter, 14 January 2020; training reaches"
            " 3.1 a cycle in all on 8+1 such cores (Nadalini et al., arXiv 2305.19167)",
        ),
        fp32_macs_per_s=derived(
            9 * 370e6,
            "9 cores x 370 MHz x 1 product: as fast as integers of that width, Linley Newsletter",
        ),
        memory_bytes=vendor(
            32 * MIB, "256 Mbit PSRAM beside GAP9, all of it: ETH Zurich, GAP9Shield; code in L2"
        ),
        memory_bandwidth=estimated(
            1 * 2 * 200e6, "1 B x 2 edges x 200 MHz: octal PSRAM at its fastest"
        ),
        idle_power_w=estimated(
            45e-6 + 0.3e-3,
            "0.045 mW + 0.3 mW: asleep (GAP9Shield), PSRAM refreshing and the radio connected",
        ),
        active_power_w=vendor(
            50e-3, "nearly 50 GOPS at 50 mW, the chip alone: Linley Newsletter, 14 January 2020"
        ),
        radio=bluetooth_low_energy(),
    )


MICROCONTROLLERS = (_portenta_h7(), _esp32_s3(), _gap9())
