"""The figures of a report, and the tables of their data."""
