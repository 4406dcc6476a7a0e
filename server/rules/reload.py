"""Reload of changed rules: read, compiled and tested while the server runs, then active at once, or refused.

A set with any error is refused as a whole, and the last valid one stays active.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rules_engine.rules.rule_set.rule_set import cluster_requirements
from rules_engine.server.rules.folder_watch import MAX_ROUNDS, files_signature
from rules_engine.server.rules.sources import MAX_REFUSED, Rules, UnusableError, prepare_rules
from rules_engine.server.state import Reload, ServerState

TEST_SECONDS = 120
"""Timeout of RuleTests."""

MAX_REPORT = 64 * 1024
"""Characters of diagnostics that are logged."""

_log = logging.getLogger(__name__)


def read_stable_rules(paths: Sequence[Path], *, test: bool = False) -> Rules:
    """Read rules, and again if they changed meanwhile, so that no set is half old and half new.

    Raises UnusableError.
    """
    for _ in range(MAX_ROUNDS):
        before, failure = files_signature(paths), None
        try:
            rules = prepare_rules(paths)
            if test and rules.tests:
                _run_tests(paths, rules.digest)
        except UnusableError as error:
            failure = error
        if files_signature(paths) == before:
            break
    if failure is not None:
        raise failure
    return rules


class Reloader:
    """Activates changed rules in `state`, once its cluster has what they read; `after_adoption` is called then."""

    def __init__(
        self,
        paths: Sequence[Path],
        state: ServerState,
        *,
        test: bool,
        after_adoption: Callable[[], None] = lambda: None,
    ) -> None:
        self._paths = tuple(paths)
        self._state = state
        self._test = test
        self._after_adoption = after_adoption
        self._refused: tuple[str, str | None] | None = None
        """Diagnostics and digest of the last set, if it was refused."""

    def reload(self) -> bool:
        """Read the current files. Return True if their rules are active. Invalid files raise nothing."""
        now = datetime.now(UTC)
        try:
            rules = read_stable_rules(self._paths, test=self._test)
            source = self._state.source
            if not source.need(cluster_requirements(rules.rule_set)):
                problems = "; ".join(source.problems) or "timed out"
                raise UnusableError(f"the cluster data that these rules need cannot be read: {problems}")
        except UnusableError as error:
            self._refuse(now, error)
            return False
        served = self._state.served
        if rules.diagnostics:
            _log.warning("%s", rules.diagnostics)
        unchanged = rules.digest == served.digest
        generation = served.generation if unchanged else served.generation + 1
        # Unchanged rules may have other locations: their files have other comments, tests or names.
        since = served.since if unchanged else now
        self._state.served = replace(rules, generation=generation, since=since)
        if unchanged:
            _log.info("rules unchanged: generation %d stays active", generation)
        else:
            counts = ", ".join(f"{count} {kind}" for kind, count in rules.rules_by_kind.items())
            _log.info("rules generation %d, digest %.12s, active: %s", generation, rules.digest, counts)
        self._refused = None
        self._state.last_reload = Reload(at=now, digest=rules.digest)
        self._after_adoption()
        return True

    def _refuse(self, now: datetime, error: UnusableError) -> None:
        diagnostics = error.diagnostics[:MAX_REPORT]
        if self._refused == (diagnostics, error.digest):
            return  # a retry with the same result, which was logged
        self._refused = diagnostics, error.digest
        self._state.last_reload = Reload(at=now, digest=error.digest, refused=error.places[:MAX_REFUSED])
        self._state.reloads_refused += 1
        generation = self._state.served.generation
        _log.error("changed rules refused, generation %d stays active:\n%s", generation, diagnostics)


def _run_tests(paths: Sequence[Path], digest: str) -> None:
    """Run the RuleTests in a child process. Raises UnusableError unless they pass."""
    command = [sys.executable, "-P", "-m", "rules_engine.server", "test", *map(str, paths)]
    try:
        process = subprocess.run(  # noqa: S603 - our own command, with configured paths
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnusableError(f"RuleTests did not end within {TEST_SECONDS} seconds", digest) from None
    if process.returncode != 0:
        output = (process.stdout + process.stderr).decode(errors="replace").strip()
        message = f"RuleTests failed (exit code {process.returncode})"
        raise UnusableError(f"{message}:\n{output}", digest, places=(message,))
