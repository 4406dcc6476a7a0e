"""Settings of all tests."""

import signal

from hypothesis import settings

# The time of an example depends on the load of the machine, not on the product.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Background jobs of a shell, such as CI, ignore SIGINT, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
