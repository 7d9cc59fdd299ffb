"""Results of a run: tables, records and models, and reading them back."""
