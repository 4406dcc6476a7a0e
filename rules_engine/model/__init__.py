"""Values of all other layers: no I/O, no clock, no third-party library."""
