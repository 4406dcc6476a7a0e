"""Behaviour that all commands share: exit codes, interrupts, output errors, terminals with small character sets."""

import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from rules_engine.model.problems.problem import Problem
    from rules_engine.report.answer import Answer
    from rules_engine.report.values import Report

A = TypeVar("A", bound="Answer")

PROBLEMS_FOUND = 1
"""Exit code of a command that ran, with a finding: problems of rules, failed cases, changes, denied or waiting pods."""

UNUSABLE = 2
"""Exit code of a command without an answer: wrong usage, input with errors or that cannot be read, lost output."""

UNKNOWN = 3
"""Exit code of a command whose answer depends on what its input lacks."""

INTERRUPTED = 128 + 2
"""Exit code after Ctrl-C, as shells report a process that SIGINT (2) ended."""

_REPLACEMENTS = dict(zip("✓✗→×−…≥▕▏░█▁▂▃▄▅▆▇│├└─", "+x>x-.>||.#_.:-=+*|+`-", strict=True))
"""Replacements of one column for signs that a terminal's encoding lacks; "?" replaces all others."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a write to a file or device that accepts no more data."""

ENCODING_ERRORS = "gpu-rules"
"""Name of the encoding error handler that writes the replacements."""


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_REPLACEMENTS.get(character, "?") for character in missing), error.end


codecs.register_error(ENCODING_ERRORS, _replace_unencodable)


@dataclass(frozen=True, slots=True)
class Target:
    """A format, and the file that it is written to; None: standard output."""

    format: str
    file: Path | None


def _write_examples(self: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG001 - click's signature
    """Write the examples of a command, each in its own line and never wrapped."""
    with formatter.section("Examples"):
        for line in (self.epilog or "").splitlines():
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class CommandGroup(click.Group):
    """A command that has commands of its own."""

    format_epilog = _write_examples


class Root(CommandGroup):
    """The root command, with its commands in groups. Reports an output error in one line."""

    sections: Mapping[str, Sequence[str]] = {}
    """Names of commands by the heading in the help; others are hidden."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, names in self.sections.items():
            commands = [self.get_command(ctx, name) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{each.name:{width}}", each.get_short_help_str(100)) for each in commands if each]
                )

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if sys.stdout is None:  # the caller closed it
            sys.stdout = io.StringIO()
        if sys.stderr is None:
            sys.stderr = io.StringIO()
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.errno not in _NO_SPACE or error.filename is not None:
                raise
            discard_output()
            click.echo(f"gpu-rules: cannot write the output: {error.strerror}", err=True)
            sys.exit(UNUSABLE)


def discard_output() -> None:
    """Discard the rest of the output, which Python flushes at exit, after an error of a write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def help_examples(*lines: str) -> str:
    """Return the epilog of a command: command lines, which `_write_examples` prints below its options."""
    return "\n".join(lines)


class Command(click.Command):
    """A command that ends quietly when interrupted, and replaces characters that the terminal's encoding lacks.

    An option whose metavar ends with `...` takes all arguments up to the next option, as in `--rules *.yaml`. Options
    of the class AdvancedOption are at the end of its help.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {
            name: parameter.opts[0]
            for parameter in self.params
            if isinstance(parameter, click.Option) and str(parameter.metavar).endswith("...")
            for name in parameter.opts
        }
        return super().parse_args(ctx, list(_with_option_repeated(args, several)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [(isinstance(each, AdvancedOption), each.get_help_record(ctx)) for each in self.get_params(ctx)]
        for title, advanced in (("Options", False), ("Advanced", True)):
            rows = [record for is_advanced, record in records if record is not None and is_advanced is advanced]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    format_epilog = _write_examples

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=ENCODING_ERRORS)
        try:
            return super().invoke(ctx)
        except click.UsageError:
            raise
        except click.ClickException as error:
            end_unusable(ctx.command_path.removeprefix(f"{ctx.find_root().info_name} "), error.format_message())
        except MemoryError:
            end_unusable(str(ctx.info_name), "too little memory")
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


class AdvancedOption(click.Option):
    """An option that most users do not need."""


class SingleOption(click.Option):
    """An option for one input: it is an error to give it twice, since the first would be lost."""

    def __init__(self, *args: Any, callback: Callable[..., Any] | None = None, **kwargs: Any) -> None:
        def unwrap(context: click.Context, parameter: click.Parameter, values: Sequence[Any]) -> Any:
            if len(values) > 1:
                raise click.BadParameter("it is given twice, and takes one value", context, parameter)
            value = values[0] if values else None
            return value if callback is None else callback(context, parameter, value)

        super().__init__(*args, **{**kwargs, "multiple": True, "callback": unwrap})

    def value_from_envvar(self, ctx: click.Context) -> Any:
        value = self.resolve_envvar_value(ctx)
        return None if value is None else (value,)


def _with_option_repeated(arguments: Sequence[str], several: Mapping[str, str]) -> Iterator[str]:
    """Yield arguments with the option repeated before each of its values."""
    option, values = "", 0
    for index, argument in enumerate(arguments):
        if argument == "--":
            yield from arguments[index:]
            return
        if argument.startswith("-") and argument != "-":
            option, values = several.get(argument, ""), 0
        else:
            values += 1
            if option and values > 1:
                yield option
        yield argument


@contextmanager
def open_output(file: Path | None) -> Iterator[TextIO]:
    """Open a file for output; None: standard output. Raises FileError if it cannot be written."""
    if file is None:
        yield sys.stdout
        return
    try:
        with file.open("w", encoding="utf-8", errors=ENCODING_ERRORS) as stream:
            yield stream
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from None


def _check_writable(file: Path | None) -> None:
    """Raise FileError if a file cannot be opened for output. It is not created."""
    if file is None or (os.access(file, os.W_OK) and not file.is_dir()):
        return
    folder = file.parent
    if os.access(file, os.F_OK) or not (os.access(folder, os.W_OK) and folder.is_dir()):
        with open_output(file):  # which fails, and says why
            pass


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt after Ctrl-C, so that it ends a simulation between two pods.

    An answer is written to its end. A second Ctrl-C ends the command at once.
    """
    seen = False
    before = signal.getsignal(signal.SIGINT)

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        if seen:
            raise SystemExit(INTERRUPTED)
        seen = True

    def check() -> None:
        if seen:
            raise KeyboardInterrupt

    if before is signal.SIG_IGN:
        yield check
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def print_json(value: object, stream: TextIO | None = None) -> None:
    """Print an answer, or a value of JSON types, as indented JSON; by default to standard output."""
    from rules_engine.report.answer import answer_text

    stream = stream or sys.stdout
    click.echo(answer_text(value, stream.encoding or ""), stream)


def print_objects(objects: Sequence[dict[str, Any]], format: str) -> None:
    """Print Kubernetes objects as a List in JSON, or as YAML documents."""
    from rules_engine.language.yaml.text import dump_yaml
    from rules_engine.report.answer import ObjectList

    if format == "json":
        print_json(ObjectList(items=tuple(objects)))
    else:
        click.echo("---\n".join(map(dump_yaml, objects)), nl=False)


def end_unusable(command: str, message: str) -> NoReturn:
    """End a command that has no answer, with the reason."""
    click.echo(f"gpu-rules {command}: {message}", err=True)
    raise SystemExit(UNUSABLE)


def end_without_answer(message: str, file: str, others: "Sequence[Problem]" = ()) -> NoReturn:
    """End a command whose input gives no answer, with the reason: a problem of the file, if it prints JSON.

    `others`: further problems of its JSON.
    """
    from rules_engine.model.problems.codes import Code
    from rules_engine.model.problems.problem import Problem
    from rules_engine.model.problems.source import Location

    context = click.get_current_context()
    command, output = str(context.info_name), context.params.get("output", "text")
    problems = InputProblems(command, context.params.get("targets", [Target(output, None)]))
    problems.items = (*others, Problem(code=Code.NO_ANSWER, message=message, location=Location(file, 1, 1)))
    if not problems.silent:
        click.echo(f"gpu-rules {command}: {message}", err=True)
    problems.end()


def fail_if(condition: bool, exit_code: int = PROBLEMS_FOUND) -> None:
    """End the command with an exit code if the condition holds."""
    if condition:
        raise SystemExit(exit_code)


def write_answer(command: str, targets: Iterable[Target], write: Callable[[str, TextIO], None]) -> None:
    """Write an answer in each format by `write`. Ends the command if one cannot be written: it has no answer then."""
    for target in targets:
        try:
            with open_output(target.file) as stream:
                write(target.format, stream)
                stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output()
            end_unusable(command, f"cannot write the output: {error.strerror}")


class InputProblems:
    """The problems of a command's input: in its JSON on standard output, or else lines on standard error.

    `items`: all problems, if there is JSON; `failed`: there is an error among them; `silent`: standard error has none;
    `unknown`: the messages about pods that are not known.
    """

    def __init__(self, command: str, targets: Iterable[Target]) -> None:
        """Raise FileError if a target cannot be written: before work that would be lost."""
        self.items: tuple[Problem, ...] = ()
        self.failed = False
        self.unknown: list[str] = []
        self._command = command
        self._targets = [*targets]
        self._json = [target for target in self._targets if target.format == "json"]
        self.silent = any(target.file is None for target in self._json)
        for target in self._targets:
            _check_writable(target.file)

    @property
    def notices(self) -> Sequence[str]:
        """Notices of a report about pods that are not known."""
        from rules_engine.model.wording import format_count

        others = len(self.unknown) - 1
        more = f" (and {format_count(others, 'more such warning')})" if others > 0 else ""
        return [f"this answer may be wrong: {first}{more}" for first in self.unknown[:1]]

    def add(self, problems: "Collection[Problem]", sources: Mapping[str, Sequence[str]], heading: str = "") -> None:
        """Keep problems, or print them below a heading."""
        from rules_engine.model.problems.problem import Severity, unknown_pods
        from rules_engine.report.text import Screen

        self.failed |= any(problem.severity is Severity.ERROR for problem in problems)
        self.unknown += unknown_pods(problems)
        if self._json:
            self.items += (*problems,)
        if self.silent or not problems:
            return
        if heading:
            click.echo(heading, err=True)
        Screen(sys.stderr).problems(problems, sources)

    def end(self) -> NoReturn:
        """End the command, which has no answer; its JSON has the problems only."""

        from rules_engine.report.answer import NoAnswer

        answer = NoAnswer(problems=self.items)
        write_answer(self._command, self._json, lambda _, stream: print_json(answer, stream))
        raise SystemExit(UNUSABLE)

    def write(
        self,
        answer: A,
        report: "Callable[[A], Report]",
        others: "Mapping[str, Callable[[A], str]]" = MappingProxyType({}),
    ) -> None:
        """Write an answer, with the problems: as JSON, its report, or a text by a function for one of `others`."""
        from dataclasses import replace

        from msgspec import structs

        answer = structs.replace(answer, problems=self.items)

        def write(format: str, stream: TextIO) -> None:
            if format in others:
                stream.write(others[format](answer))
            elif format == "json":
                print_json(answer, stream)
            else:
                shown = report(answer)
                _write_report(replace(shown, notices=[*shown.notices, *self.notices]), format, stream)

        write_answer(self._command, self._targets, write)


def _write_report(report: "Report", format: str, stream: TextIO) -> None:
    match format:
        case "html":
            from rules_engine.report.html import render_html

            stream.write(f"{render_html(report)}\n")
        case "markdown":
            from rules_engine.report.markdown import render_markdown

            stream.write(render_markdown(report))
        case _:
            from rules_engine.report.text import WITHOUT_RULES, Screen

            screen = Screen(stream)
            if click.get_current_context().params.get("rules") == ():
                screen.line(WITHOUT_RULES)
                screen.line("")
            screen.report(report)
