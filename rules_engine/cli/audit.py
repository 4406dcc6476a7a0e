"""`audit`: what rules in audit mode would have done, by decision logs."""

from pathlib import Path

import click

from rules_engine.cli.options import PathOrStdin, targets_option
from rules_engine.cli.program import Command, InputProblems, Target, fail_if, help_examples


@click.command(
    cls=Command,
    short_help="Show what rules in audit mode would have done.",
    epilog=help_examples(
        "gpu-rules audit log.jsonl",
        "gpu-rules audit - < log.jsonl",
        "gpu-rules audit log.jsonl --output html=audit.html",
    ),
)
@click.argument(
    "logs", nargs=-1, required=True, metavar="LOG...", type=PathOrStdin(exists=True, dir_okay=False, path_type=Path)
)
@targets_option("text", "json", "markdown", "html")
def audit(logs: tuple[Path, ...], targets: tuple[Target, ...]) -> None:
    """Show what rules in audit mode would have done, by rule, outcome, namespace and owner.

    Each LOG is the decision log of a server; - for standard input.

    Exits with 0 if no pod would have been denied, with 1 if one would, and with 2 if a log cannot be read or has no
    decision.
    """
    from rules_engine.model.rules.decision import Action
    from rules_engine.questions.audit import audit_logs, audit_report

    problems = InputProblems("audit", targets)
    answer = audit_logs([*dict.fromkeys(logs)])
    problems.add(answer.problems, {})
    if problems.failed:
        problems.end()
    problems.write(answer, audit_report)
    fail_if(Action.DENY in answer.actions or answer.refused > 0)
