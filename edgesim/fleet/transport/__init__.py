"""How messages and time bounds travel between hosts and devices."""
