"""What a run leaves: tables, records, models, and how they are read back."""
