"""What every test may rely on."""

import signal

# A shell's background job, which CI may well be, ignores SIGINT and hands that on to every program it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
