"""Compiled kernels on plain arrays; they know neither torch nor layers."""
