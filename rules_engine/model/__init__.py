"""Values that every other layer speaks in: no I/O, no clock, no third-party library."""
