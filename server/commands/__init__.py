"""Commands that need a network, one module each, and the root command."""

from rules_engine.server.commands.root import main

__all__ = ["main"]
