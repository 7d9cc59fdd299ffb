"""Compression: which entries of a vector are sent, and how they are encoded to bytes."""
