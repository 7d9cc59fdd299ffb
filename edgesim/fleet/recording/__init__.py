"""What is seen of a run from outside: evaluation, progress, divergence, summary."""
