"""Costs of a scenario without training: per device and iteration, and fp32 against 8 bits."""
