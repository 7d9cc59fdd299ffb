"""Tables of the cost study, as text and as JSON."""
