"""What is decided: the kinds of rules, their sources, compiled rule sets, and decisions."""
