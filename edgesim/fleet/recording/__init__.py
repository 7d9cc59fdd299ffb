"""Evaluation, progress, warnings of divergence and summary of a run."""
