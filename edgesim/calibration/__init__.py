"""Measures the machine that it runs on, and writes what it found as the profile of a device."""
