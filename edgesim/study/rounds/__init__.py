"""The rounds of a fleet without training: when they end, what they cost and what they wait for."""
