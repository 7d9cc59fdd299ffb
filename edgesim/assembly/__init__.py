"""Builds checked objects from the names in a scenario."""
