"""Radios of the catalog's devices.

Bandwidths are what an application gets, not what the standard promises. Energies are those of the
radio chip alone, for the time that the bytes take at this bandwidth. They do not include the energy
that the processor uses for each packet (Serrano et al., "Per-frame energy consumption in 802.11
devices", IEEE/ACM ToN 2015, find it to be large for small packets). If the vendor of a radio does
not publish its currents, those of a similar chip are used; the citation names the chip.
"""

from __future__ import annotations

from edgesim.hardware.catalog.entry import Figure, SourcedRadio, derived, estimated, measured


def wifi_n(bandwidth_bps: Figure) -> SourcedRadio:
    """Wi-Fi 4 at 2.4 GHz with one antenna, as small boards have it.

    Args:
        bandwidth_bps: what an application gets.
    """
    chip = "802.11n MCS 7 of another one-antenna chip, Microchip ATWILC3000A: data sheet, 8.2.2"
    return SourcedRadio(
        name="Wi-Fi 4, 2.4 GHz",
        bandwidth_bps=bandwidth_bps,
        send_j_per_byte=_per_byte(
            (229 + 23.9) * 1e-3 * 3.3, "(229 + 23.9) mA x 3.3 V", bandwidth_bps, f"sending, {chip}"
        ),
        receive_j_per_byte=_per_byte(
            (60.5 + 23.6) * 1e-3 * 3.3,
            "(60.5 + 23.6) mA x 3.3 V",
            bandwidth_bps,
            f"receiving, {chip}",
        ),
        is_half_duplex=True,
    )


def esp32_s3_wifi() -> SourcedRadio:
    """The ESP32-S3's own Wi-Fi."""
    bandwidth = measured(
        20e6, "TCP in the air of Espressif's lab: ESP-IDF guide, Wi-Fi performance of ESP32-S3"
    )
    sheet = "Espressif, ESP32-S3 data sheet, Wi-Fi currents, HT20 MCS 7, less modem sleep"
    return SourcedRadio(
        name="Wi-Fi 4, 2.4 GHz",
        bandwidth_bps=bandwidth,
        send_j_per_byte=_per_byte(
            (283 - 32.9) * 1e-3 * 3.3, "(283 - 32.9) mA x 3.3 V", bandwidth, f"sending, {sheet}"
        ),
        receive_j_per_byte=_per_byte(
            (88 - 32.9) * 1e-3 * 3.3, "(88 - 32.9) mA x 3.3 V", bandwidth, f"receiving, {sheet}"
        ),
        is_half_duplex=True,
    )


def bluetooth_low_energy() -> SourcedRadio:
    """Bluetooth 5 at 2 Mbit/s, on a Nordic nRF52."""
    bandwidth = measured(
        1.3e6,
        "about 1.3 Mbit/s of notifications at the 2 Mbit/s rate without interference: Nordic,"
        " S140 SoftDevice specification, connection throughput",
    )
    sheet = "Nordic nRF52840 product specification, radio currents with DC/DC, 2 Mbit/s"
    return SourcedRadio(
        name="Bluetooth LE",
        bandwidth_bps=bandwidth,
        send_j_per_byte=_per_byte(
            4.8e-3 * 3, "4.8 mA x 3 V", bandwidth, f"sending at 0 dBm, {sheet}"
        ),
        receive_j_per_byte=_per_byte(5.2e-3 * 3, "5.2 mA x 3 V", bandwidth, f"receiving, {sheet}"),
        is_half_duplex=True,
    )


def wifi_ac() -> SourcedRadio:
    """Wi-Fi 5 at 5 GHz with one antenna: Raspberry Pi 3B+ and later, and boards alike."""
    bandwidth = measured(
        102e6,
        "Raspberry Pi's blog, 14 March 2018: 3B+ at 5 GHz, both ways (CYW43455, also in 4B and 5)",
    )
    why = "one antenna at 5 GHz with its amplifier; the CYW43455 data sheet's order of magnitude"
    return SourcedRadio(
        name="Wi-Fi 5, 5 GHz",
        bandwidth_bps=bandwidth,
        send_j_per_byte=_per_byte(1.2, "Estimate: 1.2 W", bandwidth, f"sending, {why}"),
        receive_j_per_byte=_per_byte(0.4, "Estimate: 0.4 W", bandwidth, f"receiving, {why}"),
        is_half_duplex=True,
    )


def wifi_of_phones() -> SourcedRadio:
    """Wi-Fi 5 with two antennas."""
    bandwidth = estimated(
        0.3 * 866e6, "0.3 x 866 Mbit/s: two streams of 80 MHz; a third reaches the application"
    )
    why = "two chains at 5 GHz; twice a one-antenna chip, less what they share"
    return SourcedRadio(
        name="Wi-Fi 5, 5 GHz, two streams",
        bandwidth_bps=bandwidth,
        send_j_per_byte=_per_byte(1.5, "Estimate: 1.5 W", bandwidth, f"sending, {why}"),
        receive_j_per_byte=_per_byte(0.8, "Estimate: 0.8 W", bandwidth, f"receiving, {why}"),
        is_half_duplex=True,
    )


def wifi_of_laptops() -> SourcedRadio:
    """Wi-Fi 6 with two antennas."""
    bandwidth = estimated(
        0.5 * 1201e6, "0.5 x 1201 Mbit/s: two streams of 80 MHz; half reaches the application"
    )
    why = "two chains of Wi-Fi 6 at 5 GHz"
    return SourcedRadio(
        name="Wi-Fi 6, 5 GHz, two streams",
        bandwidth_bps=bandwidth,
        send_j_per_byte=_per_byte(2.0, "Estimate: 2 W", bandwidth, f"sending, {why}"),
        receive_j_per_byte=_per_byte(1.2, "Estimate: 1.2 W", bandwidth, f"receiving, {why}"),
        is_half_duplex=True,
    )


def gigabit_ethernet() -> SourcedRadio:
    """Ethernet cable of development kits without Wi-Fi and of servers."""
    bandwidth = measured(
        941e6, "iperf3 over gigabit Ethernet on a Raspberry Pi: mpr-projects.com, RPi NAS, part 3"
    )
    why = "a gigabit PHY at work above one in low-power idle (IEEE 802.3az), each way"
    return SourcedRadio(
        name="gigabit Ethernet",
        bandwidth_bps=bandwidth,
        send_j_per_byte=_per_byte(0.5, "Estimate: 0.5 W", bandwidth, why),
        receive_j_per_byte=_per_byte(0.5, "Estimate: 0.5 W", bandwidth, why),
        is_half_duplex=False,
    )


def _per_byte(power_w: float, arithmetic: str, bandwidth_bps: Figure, why: str) -> Figure:
    """Energy of a byte that keeps the radio busy for its time at this bandwidth."""
    return derived(
        power_w * 8 / bandwidth_bps.value,
        f"{arithmetic} x 8 bit / {bandwidth_bps.value / 1e6:.10g} Mbit/s: {why}",
    )
