"""One edge device: gossip state, trainer, mail, membership. No Ray, no asyncio."""
