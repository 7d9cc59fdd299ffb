"""Gossip outside the emulator: among processes of `torch.distributed`, around any training."""
