"""Registry of the offline commands.

A command is one module, named after it, and one entry here. All modules are imported for any command: a module imports
only the command line at its top, and everything else in its function, so that help and wrong usage are quick.
"""

import click

from rules_engine.cli.check import check
from rules_engine.cli.explain import explain
from rules_engine.cli.rule_tests import test
from rules_engine.cli.schema import schema
from rules_engine.cli.webhook_config import webhook_config

COMMANDS: tuple[click.Command, ...] = (check, explain, schema, test, webhook_config)
"""For the root command, which adds those that need the server's libraries."""
