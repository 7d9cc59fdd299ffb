"""Encoders of texts, by way of the package transformers."""
