"""Rules, their decisions, and the documents used with rules."""
