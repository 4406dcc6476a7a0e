"""The admission server, and the root command that starts it."""
