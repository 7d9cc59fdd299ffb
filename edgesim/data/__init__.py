"""Real images: sources, partitions among devices, and mini-batches."""
