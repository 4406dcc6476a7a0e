"""Parameter types, options and arguments that several commands share."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from errno import EEXIST
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from rules_engine.model.kubernetes.names import MAX_SUBDOMAIN, is_label, is_subdomain

T = TypeVar("T")

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator that adds a parameter to a command's function."""

LAST_PORT = 65535


class KnownValue(click.ParamType[T], ABC):
    """A value out of those that are known: shells complete it, in any letter case."""

    @abstractmethod
    def known(self) -> Mapping[str, str | None]:
        """Return the values, each with its description for shells that show one."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        start = incomplete.casefold()
        return [
            CompletionItem(value, help=text)
            for value, text in self.known().items()
            if value.casefold().startswith(start)
        ]


@dataclass(frozen=True, slots=True)
class Target:
    """A format, and the file that it is written to; None: standard output."""

    format: str
    file: Path | None


class TargetType(KnownValue[Target]):
    """A format, or FORMAT=FILE."""

    name = "FORMAT[=FILE]"

    def __init__(self, formats: Sequence[str]) -> None:
        self._formats = formats

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        form, given, file = str(value).partition("=")
        if form not in self._formats:
            self.fail(f"{form!r} is not one of {', '.join(self._formats)}", param, ctx)
        if given and not file:
            self.fail(f"{value!r} names no file", param, ctx)
        return Target(form, Path(file) if given else None)

    def known(self) -> Mapping[str, None]:
        return dict.fromkeys(self._formats)


class NamespaceName(click.ParamType[str]):
    """The name of a namespace: an RFC 1123 label."""

    name = "NAME"

    def __init__(self, *, empty: bool = False) -> None:
        self._empty = empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not (self._empty and value == "") and not is_label(str(value)):
            rule = "lower-case letters, digits and '-', at most 63 characters, a letter or digit at each end"
            self.fail(f"{value!r} is not a valid namespace name: {rule}", param, ctx)
        return str(value)


class ObjectName(click.ParamType[str]):
    """The name of most other objects: an RFC 1123 subdomain, labels joined by dots."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_subdomain(str(value)):
            rule = (
                f"lower-case letters, digits, '-' and '.', at most {MAX_SUBDOMAIN} characters, "
                "a letter or digit at each end"
            )
            self.fail(f"{value!r} is not a valid object name: {rule}", param, ctx)
        return str(value)


class PathOrStdin(click.Path):
    """A path, or `-` for standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-":
            return super().convert(value, param, ctx)
        from rules_engine.loading import STDIN

        return STDIN


class _MoreRules(click.Argument):
    """The further paths of `--rules`. Error messages name the option, since users do not know of this argument."""

    def get_error_hint(self, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        return "'--rules'"


# `--rules` takes several paths. An option of click takes one value, so the paths after the first arrive as arguments.
rules_option: Decorator = click.option(
    "--rules",
    "rules",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="PATH...",
    help="Files or folders of rules. Default: the packaged set named default.",
)
more_rules_argument: Decorator = click.argument(
    "more_rules", cls=_MoreRules, type=click.Path(exists=True, path_type=Path), nargs=-1, metavar=""
)


def rule_paths(rules: tuple[Path, ...], more_rules: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return all paths of rules; empty without `--rules`. Raises UsageError for further paths without `--rules`."""
    if more_rules and not rules:
        raise click.UsageError(f"unexpected argument {str(more_rules[0])!r}: paths of rules must follow --rules")
    return (*rules, *more_rules)


def paths_argument(path_type: click.Path) -> Decorator:
    """Return the argument `paths`: at least one path."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=path_type)


def manifest_option(*, required: bool) -> Decorator:
    """Return the option `-f`: the file `manifest`."""
    return click.option(
        "-f",
        "--filename",
        "manifest",
        required=required,
        metavar="FILE",
        type=PathOrStdin(exists=True, dir_okay=False, path_type=Path),
        help="Manifests of pods or workloads (Deployment, Job, ...); - for standard input.",
    )


request_namespace_option: Decorator = click.option(
    "-n",
    "--namespace",
    type=NamespaceName(empty=True),
    default="",
    metavar="NAME",
    help="Namespace of the request. Default: the manifest's, or else default.",
)


def cluster_option(help_end: str, collections: str = "nodes,pods,namespaces") -> Decorator:
    """Return the option `--cluster`: a file with a whole cluster.

    `help_end` ends its help, after the formats; `collections` are those of the cluster that the command reads.
    """
    return click.option(
        "--cluster",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"A ClusterInventory, or the output of kubectl get {collections} -A -o json{help_end}",
    )


def output_option(*formats: str) -> Decorator:
    """Return the option `--output` of these formats; text, the default, is among them."""
    return click.option(
        "--output",
        "output",
        type=click.Choice(formats),
        default="text",
        show_default=True,
        help="Output format.",
    )


def targets_option(*formats: str) -> Decorator:
    """Return the option `--output` of these formats, repeatable and each also to a file: `targets`.

    Text goes to standard output unless another format does.
    """
    *others, last = (form for form in formats if form != "text")
    choices = f"text (default), {', '.join(others)} or {last}"
    return click.option(
        "--output",
        "targets",
        type=TargetType(formats),
        multiple=True,
        callback=_targets,
        help=f"Output format: {choices}, to standard output or to FILE. Repeatable.",
    )


def _targets(_context: click.Context, _parameter: click.Parameter, given: Sequence[Target]) -> tuple[Target, ...]:
    """Check that no two formats go to the same place."""
    files = [target.file and target.file.resolve() for target in given]
    for target, file in zip(given, files, strict=True):
        if files.count(file) > 1:
            place = target.file or "standard output"
            raise click.BadParameter(f"only one format can go to {place}: write {target.format}=FILE for another file")
    return tuple(given) if None in files else (*given, Target("text", None))


FOLDER = click.Path(file_okay=False, path_type=Path)
"""A folder that need not exist."""


def write_new_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files to a folder, which is made if needed, and print their paths. One that cannot be written is removed.

    Raises UsageError, and writes nothing, if one of them exists, and FileError if one cannot be written.
    """
    from rules_engine.model.problems.excerpt import visible
    from rules_engine.starting.new_files import create_file

    # A link to nowhere exists as well: no file can be made in its place.
    existing = next((folder / name for name in files if os.path.lexists(folder / name)), None)
    if existing:
        raise click.UsageError(visible(f"nothing is written, since {existing} exists"))
    for name, text in files.items():
        path = folder / name
        try:
            if not create_file(path, text):
                raise FileExistsError(EEXIST, os.strerror(EEXIST))
        except OSError as error:
            raise click.FileError(str(path), error.strerror) from None
    for name in files:
        click.echo(visible(str(folder / name)))
