"""Norms by ranges, forward and backward."""
