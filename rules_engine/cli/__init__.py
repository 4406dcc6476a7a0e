"""Offline commands, which need neither a server nor a cluster, and the parts that the root command shares with them."""

from rules_engine.cli.commands import COMMANDS
from rules_engine.cli.options import LAST_PORT, ObjectName
from rules_engine.cli.program import Command, Root, help_examples

__all__ = ["COMMANDS", "LAST_PORT", "Command", "ObjectName", "Root", "help_examples"]
