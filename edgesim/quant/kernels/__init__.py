"""Compiled kernels on plain arrays; they know neither torch nor layers (design, section 2)."""
