"""Parameter types, options and arguments that several commands share."""

import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from errno import EEXIST
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rules_engine.cli.program import InputProblems, SingleOption, Target
from rules_engine.cli.progress import progress_bar
from rules_engine.exports.settings import DEFAULT_SETTINGS
from rules_engine.model.kubernetes.names import MAX_SUBDOMAIN, is_label, is_subdomain

if TYPE_CHECKING:
    from rules_engine.cluster.read.clusters import ClusterReading
    from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
    from rules_engine.model.problems.problem import Problem
    from rules_engine.model.rules.simulation import Simulation
    from rules_engine.rules.sources.rule_files import RuleFiles
    from rules_engine.rules.sources.rule_sources import ParseSource, RuleSource

# The modules of sources compile rules: they are imported once a source is named.

T = TypeVar("T")

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator that adds a parameter to a command's function."""

LAST_PORT = 65535


class KnownValue(click.ParamType[T], ABC):
    """One of a fixed set of values: shells complete it, in any letter case."""

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


class KnownName(KnownValue[str]):
    """One of a fixed set of names, in any letter case; `noun`: the word for one."""

    noun: ClassVar[str] = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rules_engine.model.problems.problem import did_you_mean

        names = self.known()
        canonical = {name.casefold(): name for name in names}.get(str(value).casefold())
        if canonical is None:
            near = did_you_mean(str(value), names)
            self.fail(f"unknown {self.noun} {value!r}{near}: must be one of {', '.join(names)}", param, ctx)
        return canonical


class TargetType(KnownValue[Target]):
    """A format, or FORMAT=FILE."""

    name = "FORMAT[=FILE]"

    def __init__(self, formats: Sequence[str]) -> None:
        self._formats = formats

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        form, sign, file = str(value).partition("=")
        if form not in self._formats:
            self.fail(f"{form!r} is not one of {', '.join(self._formats)}", param, ctx)
        if sign and not file:
            self.fail(f"{value!r} names no file", param, ctx)
        return Target(form, Path(file) if sign else None)

    def known(self) -> Mapping[str, None]:
        return dict.fromkeys(self._formats)


class ValidName(click.ParamType[str]):
    """A name that a function finds valid; `what`: its words in the message about others."""

    name = "NAME"

    def __init__(self, is_valid: Callable[[str], object], what: str) -> None:
        self._is_valid = is_valid
        self._what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self._is_valid(str(value)):
            self.fail(f"{value!r} is not {self._what}", param, ctx)
        return str(value)


_NAMESPACE = (
    "a valid namespace name: lower-case letters, digits and '-', at most 63 characters, a letter or digit at each end"
)
NAMESPACE_NAME = ValidName(is_label, _NAMESPACE)
OBJECT_NAME = ValidName(
    is_subdomain,
    f"a valid object name: lower-case letters, digits, '-' and '.', at most {MAX_SUBDOMAIN} characters, "
    "a letter or digit at each end",
)

server_namespace_option = click.option(
    "--namespace",
    type=NAMESPACE_NAME,
    default=DEFAULT_SETTINGS.namespace,
    show_default=True,
    help="Namespace of the server. Its pods and the pods of kube-system are excluded.",
)


class PathOrStdin(click.Path):
    """A path, or `-` for standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-":
            return super().convert(value, param, ctx)
        from rules_engine.language.files import STDIN

        if ctx is not None and ctx.meta.setdefault(f"{__name__}.stdin", param) is not param:
            self.fail("standard input is another input already", param, ctx)
        return STDIN


KUBECONFIG = "kubeconfig"
"""The value of `--cluster` for the live cluster of a kubeconfig."""

VIEW_KINDS = (
    *("Node", "Pod", "Namespace"),
    *("DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule"),
)
"""The kinds of objects that rules see."""

POD_KINDS = (
    *VIEW_KINDS,
    *("PriorityClass", "RuntimeClass", "ServiceAccount", "LimitRange", "ResourceQuota"),
    *("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "PodDisruptionBudget"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    *("ReplicaSet", "StatefulSet", "Job"),
)
"""The kinds that the API server and the scheduler read for a new pod; and kinds whose templates show its plugins."""

OFFER_KINDS = ("Node", "DeviceClass", "ResourceSlice", "DeviceTaintRule")
"""The kinds that say what nodes offer, used or not."""

OPTIONAL_PLUGINS = ("ExtendedResourceToleration",)
"""Admission plugins that are off by default, and change what pods of the input can do."""


class ClusterAccess:
    """Access to a live cluster, the object of a command's context. Without the server's libraries there is none."""

    def objects(self, context: click.Context, kinds: Sequence[str], *, whole: bool) -> "ClusterObjects":  # noqa: ARG002 - for a subclass
        """Read kinds. Ends the command if they cannot be read."""
        raise click.UsageError("--cluster kubeconfig needs the command of the server")

    def parsers(self, context: click.Context) -> "Mapping[str, ParseSource]":  # noqa: ARG002 - for a subclass
        """Return parsers of sources of rules by their prefix."""
        return {}

    def namespace(self, context: click.Context) -> str:  # noqa: ARG002 - for a subclass
        """Return the namespace of the kubeconfig's context; "" if it has none."""
        return ""

    def version(self, context: click.Context) -> tuple[int, int] | None:  # noqa: ARG002 - for a subclass
        """Return major and minor version of the live cluster; None if they are unknown."""
        return None


def _cluster_access(context: click.Context) -> ClusterAccess:
    return context.find_object(ClusterAccess) or ClusterAccess()


class RuleSourceType(click.ParamType["RuleSource"]):
    """A source of rules: a path, a packaged set, or a source with a prefix."""

    name = "SOURCE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "RuleSource":
        from rules_engine.rules.sources.rule_sources import PREFIXES, SourceError, parse_source

        parsers = {} if ctx is None else _cluster_access(ctx).parsers(ctx)
        try:
            return parse_source(str(value), {**PREFIXES, **parsers})
        except SourceError as error:
            self.fail(str(error), param, ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        return "Name files, folders, or a packaged set that gpu-rules sets list shows, such as set:gpu-allocation."

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        from rules_engine.rules.sources.packaged_sets import list_packaged_sets

        sets = [
            CompletionItem(name, help="packaged set") for name in list_packaged_sets() if name.startswith(incomplete)
        ]
        return [*sets, CompletionItem(incomplete, type="file")]


def sources_option(
    name: str, contents: str, *, several: bool = False, required: bool = False, default: str = ""
) -> Decorator:
    """Return a repeatable option for sources of rules; its help begins with their contents.

    `several`: it takes all arguments up to the next option.
    """
    return click.option(
        name,
        type=RuleSourceType(),
        multiple=True,
        required=required,
        metavar="SOURCE..." if several else "SOURCE",
        help=f"{contents}: files, folders, set:NAME, git:REF:PATH or configmap:NAMESPACE/NAME. Repeatable.{default}",
    )


rules_option = sources_option("--rules", "Rules", several=True, default=" Default: no rules.")
required_rules_option = sources_option("--rules", "Rules", several=True, required=True)


def _add_catalogues(_context: click.Context, _parameter: click.Parameter, files: Sequence[Path]) -> None:
    """Add to the catalogue of accelerators. Ends the command if a file has errors, or nothing to add."""
    from rules_engine.rules.sources.load import CATALOGUE, load_files

    for file in files:
        loaded = load_files([file], [CATALOGUE])
        report_problems("", "text", loaded.problems, loaded.sources, unusable=loaded.failed)
        if not loaded.documents:
            raise click.BadParameter(f"{str(file)!r} has no AcceleratorCatalogue")


catalogue_option = click.option(
    "--catalogue",
    type=click.Path(path_type=Path),
    multiple=True,
    is_eager=True,  # before names of sets and cards
    expose_value=False,
    callback=_add_catalogues,
    metavar="FILE",
    help="Accelerators to add to the packaged catalogue: AcceleratorCatalogues. Repeatable.",
)


def paths_argument(path_type: click.Path) -> Decorator:
    """Return the argument `paths`: at least one path."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=path_type)


def manifests_option(*, required: bool) -> Decorator:
    """Return the option `-f`: the files and folders `manifests`."""
    return click.option(
        "-f",
        "--filename",
        "manifests",
        required=required,
        multiple=True,
        metavar="PATH",
        type=PathOrStdin(exists=True, path_type=Path),
        help="Manifests of pods or workloads (Deployment, Job, ...): a file, a folder, or - for standard input. "
        "Repeatable.",
    )


def log_option(text: str) -> Decorator:
    """Return the option `--from-log`: the file `log`."""
    return click.option(
        "--from-log",
        "log",
        cls=SingleOption,
        metavar="FILE",
        type=PathOrStdin(exists=True, dir_okay=False, path_type=Path),
        help=text,
    )


request_namespace_option: Decorator = click.option(
    "-n",
    "--namespace",
    type=ValidName(lambda name: not name or is_label(name), _NAMESPACE),
    default="",
    metavar="NAME",
    help="Namespace of manifests that name none. Default: that of a live cluster's context, else default.",
)

load_option: Decorator = click.option(
    "-f",
    "--filename",
    "file",
    cls=SingleOption,
    required=True,
    metavar="FILE",
    type=PathOrStdin(exists=True, dir_okay=False, path_type=Path),
    help="A Simulation: the cluster, and the pods and workloads that arrive; - for standard input.",
)

by_option: Decorator = click.option(
    "--by",
    type=click.Choice(["waiting", "given", "unserved"]),
    help="Choose the best by mean waiting time (default), GPU-hours given without those lost to fallback, or pods that "
    "never ran.",
)


@dataclass(frozen=True, slots=True)
class ClusterArgument:
    """A value of `--cluster`: a path, or None for the live cluster of a kubeconfig, of which `kinds` are read.

    `plugins`: optional admission plugins that are on.
    """

    path: Path | None
    context: click.Context
    kinds: Sequence[str]
    plugins: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return KUBECONFIG if self.path is None else str(self.path)

    @property
    def namespace(self) -> str:
        """The namespace of manifests that name none, as for kubectl: that of a live cluster's context, or ""."""
        return _cluster_access(self.context).namespace(self.context) if self.path is None else ""

    @property
    def version(self) -> tuple[int, int] | None:
        """The version of a live cluster; None for a file, and if it is unknown."""
        return _cluster_access(self.context).version(self.context) if self.path is None else None

    def read(self, *, whole: bool = False, assumed: Sequence[str] = ("Pod",), nodes: bool = True) -> "ClusterReading":
        """Read the cluster. Ends the command if a live one is unreadable.

        `whole`: with values that are never kept. `assumed`: kinds without which a warning says what is assumed.
        `nodes`: it is an error if nodes were not read.
        """
        from rules_engine.cluster.read.clusters import read_cluster, reading_of

        if self.path is not None:
            with progress_bar("elapsed") as report:
                reading = read_cluster([self.path], whole=whole, progress=partial(report, "reading"))
            gc.freeze()  # the objects stay: the collector would traverse them again and again
        else:
            objects = _cluster_access(self.context).objects(self.context, self.kinds, whole=whole)
            reading = reading_of(objects, KUBECONFIG)
        reading = reading.with_assumptions([kind for kind in assumed if kind in self.kinds], nodes=nodes)
        if reading.objects is not None and self.plugins:
            reading = replace(reading, objects=reading.objects.with_objects({}, plugins=self.plugins))
        return reading


class ClusterType(PathOrStdin):
    """A path or `-`, or the word for the live cluster of a kubeconfig."""

    def __init__(self, kinds: Sequence[str]) -> None:
        super().__init__(exists=True, path_type=Path)
        self._kinds = kinds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = None if value == KUBECONFIG else super().convert(value, param, ctx)
        return ClusterArgument(path, ctx or click.get_current_context(), self._kinds)


def cluster_option(
    help_end: str,
    kinds: Sequence[str] = VIEW_KINDS,
    *,
    multiple: bool = False,
    help_start: str = "",
    live: bool = False,
    creates: bool = False,
) -> Decorator:
    """Return the options `--cluster`, a ClusterArgument or None, `--context` and `--kubeconfig`.

    `help_end` ends the help, after the formats; `kinds`: those that the command reads of a live cluster.
    `multiple`: a tuple `clusters` in place of `cluster`. `live`: without the option, it is the live cluster.
    `creates`: pods are created on it, and there is an option `--admission`.
    """
    option = click.option(
        "--cluster",
        "clusters" if multiple else "cluster",
        cls=click.Option if multiple else SingleOption,
        type=ClusterType(kinds),
        default=[KUBECONFIG] if live else None,
        metavar=f"{KUBECONFIG}|PATH",
        help=f"{help_start}kubeconfig: the live cluster; or what gpu-rules capture or kubectl wrote of one, a "
        f"ClusterInventory, or a must-gather folder; - for standard input{help_end}",
        **{"multiple": True} if multiple else {},
    )

    admission = click.option(
        "--admission",
        type=click.Choice(OPTIONAL_PLUGINS),
        multiple=True,
        metavar="PLUGIN",
        help="ExtendedResourceToleration: this admission plugin is on in the cluster, as on GKE and EKS.",
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(*args: Any, **values: Any) -> None:
            context = click.get_current_context()
            plugins = frozenset(values.pop("admission", ()))
            if multiple:
                values["clusters"] = tuple(replace(each, plugins=plugins) for each in values["clusters"])
            elif values["cluster"] is not None:
                values["cluster"] = replace(values["cluster"], plugins=plugins)
            arguments: Sequence[ClusterArgument | None] = values["clusters"] if multiple else [values["cluster"]]
            if not any(each.path is None for each in arguments if each):
                check_live_options(context, "--cluster kubeconfig or configmap:NAMESPACE/NAME")
            function(*args, **values)

        decorated = live_options(command)
        return option(admission(decorated) if creates else decorated)

    return decorate


def read_load(
    file: Path,
    clusters: Sequence[ClusterArgument],
    sets: "Iterable[Sequence[RuleSource]]",
    problems: InputProblems,
    *,
    needs_cluster: bool = True,
) -> "tuple[Sequence[Simulation], Sequence[RuleFiles]]":
    """Read the Simulation with each cluster, and all rule sets. Ends the command if there are errors.

    Its workloads may be of the WorkloadKinds of any rule set.
    """
    from rules_engine.rules.sources.rule_files import has_errors
    from rules_engine.rules.sources.rule_sources import read_sources
    from rules_engine.rules.sources.simulations import load_simulations

    readings = [each.read() for each in clusters]
    files = [read_sources(each) for each in sets]
    kinds = [kind for each in files for kind in each.rule_set.workload_kinds]
    simulations, load_problems, sources = load_simulations(file, readings, kinds, needs_cluster=needs_cluster)
    seen = dict.fromkeys((*load_problems, *(problem for each in files for problem in each.rule_problems)))
    for each in files:
        sources = {**sources, **each.loaded.sources}
    problems.add(seen, sources)
    if not simulations or has_errors(tuple(seen)):
        problems.end()
    return simulations, files


def report_problems(
    command: str, output: str, found: "Collection[Problem]", sources: Mapping[str, Sequence[str]], *, unusable: bool
) -> None:
    """Print the problems of a command's input as text; or end the command, which has no answer, if it is unusable."""
    problems = InputProblems(command, [Target(output, None)] if unusable else ())
    problems.add(found, sources)
    if unusable:
        problems.end()


def check_live_options(context: click.Context, needed: str) -> None:
    """Raise UsageError for `--context` and `--kubeconfig` of a command that reads nothing of a live cluster."""
    several = [value for value in context.params.values() if isinstance(value, tuple)]
    if not any(str(source).startswith("configmap:") for value in several for source in value):
        for option in kubeconfig_options(context):
            raise click.UsageError(f"{option} needs {needed}")


def live_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--context` and `--kubeconfig`, which the connection reads from the context of the command."""
    file = click.option(
        "--kubeconfig",
        cls=SingleOption,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_keep_option,
        help="File of the live cluster. Default: KUBECONFIG, or ~/.kube/config.",
    )
    context = click.option(
        "--context",
        cls=SingleOption,
        metavar="NAME",
        expose_value=False,
        callback=_keep_option,
        help="Context of the kubeconfig. Default: its current one.",
    )
    return file(context(function))


def _keep_option(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value is not None:
        context.meta.setdefault(__name__, {})[parameter.opts[0]] = str(value)
    return value


def kubeconfig_options(context: click.Context) -> Mapping[str, str]:
    """Return the values of `--kubeconfig` and `--context` that are given."""
    options: Mapping[str, str] = context.meta.get(__name__, {})
    return options


def given_options(context: click.Context) -> Mapping[str, str]:
    """Return the options on the command line or in the environment, by the names of their parameters."""
    defaults = (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    names = {str(each.name): each.opts[-1] for each in context.command.params}
    return {name: option for name, option in names.items() if context.get_parameter_source(name) not in defaults}


def output_option(*formats: str) -> Decorator:
    """Return the option `--output` of these formats; text, the default, is among them."""
    return click.option(
        "-o", "--output", "output", type=click.Choice(formats), default="text", show_default=True, help="Output format."
    )


def targets_option(*formats: str) -> Decorator:
    """Return the option `--output` of these formats, repeatable and each also to a file: `targets`.

    Text goes to standard output unless another format does.
    """
    *others, last = (form for form in formats if form != "text")
    choices = f"text (default), {', '.join(others)} or {last}"
    return click.option(
        "-o",
        "--output",
        "targets",
        type=TargetType(formats),
        multiple=True,
        callback=_check_targets,
        help=f"Output format: {choices}, to standard output or to FILE. Repeatable.",
    )


def _check_targets(
    _context: click.Context, _parameter: click.Parameter, targets: Sequence[Target]
) -> tuple[Target, ...]:
    """Check that no two formats go to the same place."""
    files = [target.file and target.file.resolve() for target in targets]
    for target, file in zip(targets, files, strict=True):
        if files.count(file) > 1:
            place = target.file or "standard output"
            raise click.BadParameter(f"only one format can go to {place}: write {target.format}=FILE for another file")
    return tuple(targets) if None in files else (*targets, Target("text", None))


FOLDER = click.Path(file_okay=False, path_type=Path)
"""A folder that need not exist."""


def write_new_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files to a folder, which is made if needed, and print their paths. One that cannot be written is removed.

    Raises UsageError, and writes nothing, if one of them exists, and FileError if one cannot be written.
    """
    from rules_engine.authoring.init import create_file
    from rules_engine.model.problems.source import escape_controls

    # A link to nowhere exists as well: no file can be made in its place.
    existing = next((folder / name for name in files if os.path.lexists(folder / name)), None)
    if existing:
        raise click.UsageError(escape_controls(f"nothing is written, since {existing} exists"))
    for name, text in files.items():
        path = folder / name
        try:
            if not create_file(path, text):
                raise FileExistsError(EEXIST, os.strerror(EEXIST))
        except OSError as error:
            raise click.FileError(str(path), error.strerror) from None
    for name in files:
        click.echo(escape_controls(str(folder / name)))
