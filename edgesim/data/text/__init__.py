"""Datasets of texts: their files, and how texts become rows of tokens."""
