"""Actors, their launch and placement, and a Ray of one's own. Ray is imported here alone."""
