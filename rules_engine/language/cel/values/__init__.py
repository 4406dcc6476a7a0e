"""Types and run-time values, and the operations on them."""
