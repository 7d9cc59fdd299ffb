"""Products of packed matrices of 8-bit and 16-bit codes, in register tiles."""
