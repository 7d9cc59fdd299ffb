"""Notices before a run: what a scenario allows, and what its user may not have meant."""
