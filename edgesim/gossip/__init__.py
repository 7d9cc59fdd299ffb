"""Gossip algorithms in edge form: per edge and per message, for fixed and changing graphs."""
