"""RuleTests: runs, mismatches and coverage."""
