"""A scenario's names become checked objects."""
