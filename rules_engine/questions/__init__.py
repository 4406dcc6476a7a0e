"""One room for each question: explain, preflight, doctor, diff, simulate, plan."""
