"""Quantization and the noise of stochastic rounding."""
