"""A folder of rules to start from."""
