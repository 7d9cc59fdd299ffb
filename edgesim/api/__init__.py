"""What the command line and Python code both call: scenarios in, runs and answers out."""
