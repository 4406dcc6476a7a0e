"""Documents: the rules, tests, simulations and inventories of files, with all their problems."""
