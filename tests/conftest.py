"""What every test may rely on."""

import signal

from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing of the product.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell's background job, which CI may well be, ignores SIGINT and hands that on to every program it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
