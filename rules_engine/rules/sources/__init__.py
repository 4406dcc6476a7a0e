"""Sources of rules: files, packaged sets, git revisions."""
