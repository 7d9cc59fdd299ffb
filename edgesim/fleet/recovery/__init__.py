"""Checkpoints, logs of sent messages, and the check that no round is missing."""
