"""What happened in runs, as one HTML page that needs neither a network nor a server."""
