"""Rules, their decisions, and the documents beside them."""
