"""Convolutions of codes: direct, depthwise, Winograd."""
