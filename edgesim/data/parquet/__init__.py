"""Images in Parquet files, and what must be known of such files before they are read."""
