"""Datasets: sources of images and arrays, partitions among devices, and mini-batches."""
