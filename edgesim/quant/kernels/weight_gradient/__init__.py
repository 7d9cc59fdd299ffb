"""Gradients of convolutions at their weights."""
