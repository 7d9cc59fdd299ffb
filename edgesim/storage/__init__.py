"""Bytes that survive a crash: stores, leases, checkpoint files, sealed files."""
