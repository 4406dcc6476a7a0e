"""The command: what an interrupt needs to know is set before anything else is imported, typing included."""

import signal


def main() -> object:
    """Run gpu-rules. Until its commands can be asked, and once they have ended, Ctrl-C ends the process at once."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as for what a shell runs in the background
    if not ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from server.cli import main as command

    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return command(prog_name="gpu-rules")
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
