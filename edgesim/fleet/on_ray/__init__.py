"""Actors, their launch and placement, and edgesim's own Ray. Ray is imported here alone."""
