"""Offline commands, which need neither a server nor a cluster, and the parts that the root command shares with them.

Each command is one module, named after it, and one entry here. Every command imports all modules: a module imports
only the command line and defaults at its top, and everything else in its function, so that help and usage errors are
quick.
"""

import click

from rules_engine.cli.audit import audit
from rules_engine.cli.check import check
from rules_engine.cli.convert import convert
from rules_engine.cli.diff import diff
from rules_engine.cli.eval import evaluate
from rules_engine.cli.explain import explain
from rules_engine.cli.init import init
from rules_engine.cli.native import native
from rules_engine.cli.options import LAST_PORT, NAMESPACE_NAME, OBJECT_NAME, ValidName
from rules_engine.cli.plan import plan
from rules_engine.cli.pre_commit import pre_commit
from rules_engine.cli.preflight import preflight
from rules_engine.cli.program import Command, Root, help_examples
from rules_engine.cli.rule_list import list_command
from rules_engine.cli.rule_tests import test
from rules_engine.cli.schema import schema
from rules_engine.cli.sets import sets
from rules_engine.cli.simulate import simulate
from rules_engine.cli.webhook_config import webhook_config

COMMANDS: tuple[click.Command, ...] = (
    audit,
    check,
    convert,
    diff,
    evaluate,
    explain,
    init,
    list_command,
    native,
    plan,
    pre_commit,
    preflight,
    schema,
    sets,
    simulate,
    test,
    webhook_config,
)
"""All offline commands; the root command adds those that need the server's libraries."""

__all__ = ["COMMANDS", "LAST_PORT", "NAMESPACE_NAME", "OBJECT_NAME", "Command", "Root", "ValidName", "help_examples"]
