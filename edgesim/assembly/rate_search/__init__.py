"""The search for an averaging rate, by consensus alone, before training."""
