"""The fleet: hosts that drive devices, the Ray actors around them, launch and recording."""
