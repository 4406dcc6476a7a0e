"""The files that a new repository of rules starts with."""
