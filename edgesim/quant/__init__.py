"""8-bit arithmetic: grids, products of integers, range norms, and layers with their gradients."""
