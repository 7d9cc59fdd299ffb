"""One event loop for the devices of one process. No Ray."""
