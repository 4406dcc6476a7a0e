"""Rules: their kinds and sources, compiled rule sets, and decisions."""
