"""The search for an averaging rate, by gossip without training."""
