"""The command. It sets the handler of SIGINT before it imports anything else, typing included."""

import signal
import sys


def main() -> object:
    """Run gpu-rules. While commands are being imported, and once they have ended, Ctrl-C ends the process at once."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in background jobs of a shell
    if not ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rules_engine.server.commands import main as command

    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return command(prog_name=program_name(sys.argv[0]))
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def program_name(path: str) -> str:
    """Return the command as the user typed it: kubectl runs the file kubectl-gpu_rules for `kubectl gpu-rules`."""
    return "kubectl gpu-rules" if path.endswith("kubectl-gpu_rules") else "gpu-rules"


if __name__ == "__main__":
    main()
