"""Parts of one's own are tried before a run: they do once what they will do in every round."""
