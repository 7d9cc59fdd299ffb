"""Hardware of devices and its costs: profiles, work, energy, virtual time. No torch."""
