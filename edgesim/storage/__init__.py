"""Files that survive a crash: stores, leases, checkpoint files, files with checksums."""
