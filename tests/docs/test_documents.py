"""README.md and docs/: outputs are current, and link targets and names exist."""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
import yaml

from rules_engine.authoring.check.check import check_files
from rules_engine.cluster.nodes.node_index import MAX_CAPACITIES_BYTES
from rules_engine.cluster.nodes.reservations import LIFETIME_SECONDS, MAX_PER_NAMESPACE
from rules_engine.cluster.scheduling.filters import devices
from rules_engine.exports.configuration import BREAK_GLASS_LABEL, BREAK_GLASS_VALUE
from rules_engine.language.cel.budget import REQUEST_COST
from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import schema
from rules_engine.model.kubernetes.placement import MAX_REQUIREMENTS, MAX_TERMS, MAX_TOLERATIONS
from rules_engine.model.problems.problem import render_problem
from rules_engine.model.rules.rule import SKIP_ANNOTATION
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from rules_engine.rules.evaluation.steps import MAX_PATCH_BYTES
from rules_engine.server import settings
from rules_engine.server.commands import main
from rules_engine.server.http import limits
from rules_engine.server.http.limits import Limit
from rules_engine.server.http.review import StatusReason
from rules_engine.server.telemetry import decision_log, events
from tools import command_reference, field_reference, metric_reference, problem_reference, workload_reference
from tools.documents import DOCUMENTS, REPOSITORY, blocks, is_excerpt, renewed

README = REPOSITORY / "README.md"
ARCHITECTURE = REPOSITORY / "docs/explanation/architecture.md"
INTERNALS = REPOSITORY / "docs/contributing/internals.md"
PACKAGES = ("rules_engine", "server")
EVERY = [*DOCUMENTS, *(REPOSITORY / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
WRITTEN = [document for document in EVERY if document != command_reference.DOCUMENT]


def named(path: Path) -> str:
    return path.name


def prose(path: Path) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if "```" in d.read_text()], ids=named)
def test_examples_print_what_the_document_says(document: Path) -> None:
    text = document.read_text()

    assert text == renewed(text)


def test_lines_may_be_left_out_of_an_output() -> None:
    output = "one\ntwo\nthree\nfour\n"

    assert all(
        is_excerpt(shown, output)
        for shown in ("one\n...\n", "...\nfour\n", "one\n...\nthree\nfour\n", "...\ntwo\n...\n")
    )
    assert not any(
        is_excerpt(shown, output) for shown in (output, "one\n", "one\n...\ntwo\n...\n", "...\nfive\n", "three\n...\n")
    )


def test_examples_are_run() -> None:
    run = {document.name for document in DOCUMENTS for block in blocks(document.read_text()) if "$ gpu" in block.text}

    assert {"README.md", "ladders.md", "injection.md", "write-and-test.md"} <= run


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each != problem_reference.DOCUMENT], ids=named)
def test_rules_in_examples_are_valid_unless_titled_broken(document: Path, tmp_path: Path) -> None:
    for index, block in enumerate(blocks(document.read_text())):
        of_other_tools = block.title.startswith(".") or not (block.title or "gpurules.io/" in block.text)
        if block.language == "yaml" and not of_other_tools and "broken" not in block.title:
            file = tmp_path / (block.title or f"example-{index}.yaml")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)

    for folder in {file.parent for file in tmp_path.rglob("*.yaml")}:
        checked = check_files(sorted(folder.glob("*.yaml")))
        assert [render_problem(problem, checked.sources) for problem in checked.answer.problems] == []


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", EVERY, ids=named)
def test_link_targets_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (document.parent / file).resolve() if file else document
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


@pytest.mark.parametrize("document", EVERY, ids=named)
def test_links_with_the_name_of_a_page_lead_to_it(document: Path) -> None:
    for text, target in re.findall(r"\[([\w./-]+\.md)\]\(([^)\s#]+)", prose(document)):
        assert Path(text).name == Path(target).name


def missing_pages(text: str) -> list[str]:
    """Return the references to pages in docs/ that do not exist, or have no such heading."""
    own = re.sub(r"https://github\.com/(?!gpu-rules/)\S+", "", text)
    references = re.findall(r"\b(docs/[\w./-]+\.md)(?:#([\w-]+))?", own)
    return [
        f"{page}#{anchor}".rstrip("#")
        for page, anchor in references
        if not (REPOSITORY / page).exists() or (anchor and anchor not in anchors(REPOSITORY / page))
    ]


def test_references_to_missing_pages_and_headings_are_recognized() -> None:
    folder = "docs/"
    references = [f"{folder}absent.md", f"{folder}reference/cel.md", f"{folder}reference/cel.md#absent"]

    assert missing_pages("".join(f"See {each}." for each in (*references, f"{references[1]}#bounds"))) == [
        references[0],
        references[2],
    ]
    assert missing_pages(f"https://github.com/other/tool/blob/main/{references[0]}") == []


TEXTS = (
    ".json",
    ".md",
    ".py",
    ".sh",
    ".toml",
    ".tpl",
    ".txt",
    ".yaml",
    ".yml",
    ".html",
    ".js",
    "Makefile",
    "Dockerfile",
)


def test_references_to_pages_exist_in_all_files() -> None:
    files = [
        path
        for root in (*REPOSITORY.glob("[!.]*"), REPOSITORY / ".ci")
        for path in (root.rglob("*") if f"{root.name}/" in (*ROOTS, ".ci/") else [root])
        if path.is_file() and path.name.endswith(TEXTS)
    ]
    missing = {path: missing_pages(path.read_text(encoding="utf-8", errors="replace")) for path in files}

    assert len(files) > 500
    assert {str(path): pages for path, pages in missing.items() if pages} == {}


ROOTS = ("rules_engine/", "server/", "schemas/", "rules/", "examples/", "tests/", "docs/", "deploy/", "bench/")


@pytest.mark.parametrize("document", EVERY, ids=named)
def test_named_files_exist(document: Path) -> None:
    own = {block.title for block in blocks(document.read_text())}
    missing = [
        name
        for name in re.findall(r"`([\w./-]+)`", prose(document))
        if name.startswith(ROOTS) and name not in own and not is_path(name)
    ]

    assert missing == []


def is_path(name: str) -> bool:
    """Return True for a file, a folder, or a module without its suffix, which may be either."""
    return (REPOSITORY / name).exists() or (REPOSITORY / f"{name}.py").exists()


def packages() -> set[Path]:
    """Return the packages of the engine and of the server, without those inside of them."""
    return {
        path.parent.relative_to(REPOSITORY)
        for package in PACKAGES
        for pattern in ("*.py", "*/*.py")
        for path in (REPOSITORY / package).glob(pattern)
        if not path.parent.is_symlink()
    }


@pytest.mark.parametrize("page", [ARCHITECTURE, INTERNALS], ids=named)
def test_the_architecture_names_only_files_that_exist(page: Path) -> None:
    names = re.findall(r"`([\w./-]+(?:\.\w+|/))`", prose(page))
    outside = {"values.yaml", "values.schema.json", "problems.toml"}  # of the chart, and of each kind

    assert len(names) > 20
    assert [name for name in names if not is_path(name) and name not in outside] == []


def test_the_internals_name_every_package() -> None:
    text = prose(INTERNALS)

    assert len(packages()) > 15
    assert [str(package) for package in packages() if f"`{package}" not in text] == []


@pytest.mark.parametrize("document", WRITTEN, ids=named)
def test_named_commands_exist(document: Path) -> None:
    named_here = set(
        re.findall(r"(?:^ *|`|\$ |; )gpu-rules ([a-z]+(?:-[a-z]+)*)\b", document.read_text(), re.MULTILINE)
    )

    assert named_here <= set(main.commands)


@pytest.mark.parametrize("document", WRITTEN, ids=named)
def test_named_options_exist(document: Path) -> None:
    groups = [command for command in main.commands.values() if isinstance(command, click.Group)]
    commands = [*main.commands.values(), *(command for group in groups for command in group.commands.values())]
    known = {name for command in commands for option in command.params for name in option.opts} | {
        "--help",
        "--version",
    }
    own = re.sub(
        r"\b(curl|gh api|flask --app|kubectl|git diff|helm (upgrade|test|template|4)).*",
        "",
        document.read_text(),
    )
    named_here = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own))

    assert named_here <= known


@pytest.mark.parametrize("document", EVERY, ids=named)
def test_named_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("document", ["README.md", "docs/how-to/operate.md", "docs/how-to/deploy.md"])
def test_documents_for_operators_link_the_threat_model(document: str) -> None:
    assert "threat-model.md)" in (REPOSITORY / document).read_text()


@pytest.mark.parametrize(
    "text",
    [
        f"`{SKIP_ANNOTATION}`", "sidecars", "`pods/resize`", "Dynamic Resource Allocation", "Requests without limits",
        "`generateName`", "Ephemeral containers", "dry run", "`objectSelector`", "`gpurules.io/fallback`",
        "static pods", f"`{BREAK_GLASS_LABEL}: {BREAK_GLASS_VALUE}`", "no boundary while the server does not answer",
        "`tls.bootstrap.admissionPolicy`", "Secret", "`--client-ca`", "`NVIDIA_VISIBLE_DEVICES`",
        "Privileged containers", "Other webhooks", "`DRAExtendedResource`",
    ],
)  # fmt: skip
def test_the_threat_model_covers_known_evasions(text: str) -> None:
    assert text in re.sub(r"\s+", " ", (REPOSITORY / "docs/explanation/threat-model.md").read_text())


def test_the_index_links_every_page() -> None:
    index = REPOSITORY / "docs/index.md"
    pages = set((REPOSITORY / "docs").rglob("*.md")) - {index}

    assert set(re.findall(r"\]\((.+?\.md)\)", index.read_text())) == {
        str(page.relative_to(index.parent)) for page in pages
    }
    assert "(docs/index.md)" in README.read_text()


# docs/reference/rules.md


def test_the_tables_of_fields_match_the_schemas() -> None:
    text = field_reference.DOCUMENT.read_text()

    assert text == field_reference.renewed(text)


def test_every_kind_has_a_table() -> None:
    documented = field_reference.sections(field_reference.DOCUMENT.read_text())

    assert set(documented) == {*DOCUMENT_KINDS, "common", "types"}


def property_names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield from node["properties"]
        for key, value in node.items():
            if key != "examples":
                yield from property_names(value)
    elif isinstance(node, list):
        for value in node:
            yield from property_names(value)


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_no_field_of_a_schema_is_missing(kind: str) -> None:
    text = field_reference.DOCUMENT.read_text()
    document = {"apiVersion", "kind", "metadata", "spec"}  # documented in the first paragraph
    missing = [
        name for name in set(property_names(schema(kind))) - document if not re.search(rf"`[\w.\[\]]*\b{name}`", text)
    ]

    assert missing == []


# docs/reference/commands.md


def test_the_kinds_of_workloads_are_current() -> None:
    assert workload_reference.DOCUMENT.read_text() == workload_reference.document(), "tools.workload_reference"


def test_the_help_of_commands_is_current() -> None:
    text = command_reference.DOCUMENT.read_text()

    assert text == command_reference.renewed(text), "python -m tools.command_reference"


# docs/reference/metrics.md


def test_the_tables_of_metrics_are_current() -> None:
    text = metric_reference.DOCUMENT.read_text()

    assert text == metric_reference.renewed(text), "python -m tools.metric_reference"
    assert text.count("<!-- metrics: ") == len(metric_reference.TABLES)


# docs/reference/http.md


def test_http_statuses_match_the_server() -> None:
    section = (REPOSITORY / "docs/reference/http.md").read_text().partition("## Errors")[2].partition("\n## ")[0]

    assert {int(code) for code in re.findall(r"^\| (\d+) ", section, re.MULTILINE)} == {
        *(reason.code for reason in StatusReason),
        HTTPStatus.NOT_FOUND.value,  # by Flask's routing
    }


# docs/how-to/operate.md, docs/reference/http.md and docs/reference/metrics.md

KIB, MIB = 1024, 1024 * 1024


def bounds() -> list[list[str]]:
    """Return the rows of the table of bounds, as lists of cells."""
    text = (REPOSITORY / "docs/how-to/operate.md").read_text().partition("## Bounds\n")[2].partition("\n## ")[0]
    return [row.strip("| ").split(" | ") for row in re.findall(r"^\| .* \|$", text, re.MULTILINE)][1:]


def test_every_limit_is_in_the_table_of_bounds() -> None:
    assert {found for row in bounds() for found in re.findall(r"^`([a-z-]+)`$", row[2])} == {
        limit.value for limit in Limit
    }


@pytest.mark.parametrize(
    ("what", "bound"),
    [
        (
            "open connections, handshakes included",
            f"{limits.CONNECTIONS:,}; the plain listener {limits.PLAIN_CONNECTIONS}",
        ),
        ("a TLS handshake", f"{limits.HANDSHAKE_SECONDS:g} s"),
        ("a first request", f"{limits.FIRST_REQUEST_SECONDS:g} s"),
        ("an idle connection", f"{limits.IDLE_SECONDS:g} s"),
        ("request line and headers", f"{limits.HEADER_BYTES // KIB} KiB, {limits.HEADERS} headers"),
        ("their arrival", f"{limits.HEADER_SECONDS:g} s"),
        ("a body", f"{limits.BODY_BYTES // MIB} MiB"),
        ("a body's arrival", f"`--receive-seconds`, {limits.RECEIVE_SECONDS:g} s"),
        ("a response that the client does not read", f"{limits.UNREAD_SECONDS:g} s"),
        ("all headers and bodies that are received or wait for a decision", f"{limits.HELD_BYTES // MIB} MiB"),
        ("a body, parsed", f"{limits.PARSED_BYTES // MIB} MiB, estimated from its text before it is parsed"),
        (
            "decisions in the thread for larger pods, or waiting for it",
            f"`--max-concurrent`, {limits.CONCURRENT_DECISIONS:,}",
        ),
        ("a request's time", f"`--request-timeout`, {limits.REQUEST_SECONDS:g} s"),
    ],
)
def test_the_table_of_bounds_matches_the_server(what: str, bound: str) -> None:
    assert [row[1] for row in bounds() if row[0] == what] == [bound]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("how-to/operate.md", f"`Retry-After: {limits.RETRY_AFTER_SECONDS}`"),
        ("how-to/operate.md", f"accepting pauses for {limits.ACCEPT_PAUSE_SECONDS:g} s"),
        ("how-to/operate.md", f"Bodies over {limits.SMALL_BYTES // KIB} KiB,"),
        (
            "how-to/operate.md",
            f"than {limits.SMALL_CONTAINERS} containers or {limits.SMALL_AMOUNTS} amounts of resources",
        ),
        ("how-to/operate.md", f"has been blocked for {limits.STALLED_SECONDS:g} s"),
        ("how-to/operate.md", f"For `--drain-seconds` ({settings.DRAIN_SECONDS:g})"),
        ("how-to/operate.md", f"for up to `--grace-seconds` ({settings.GRACE_SECONDS})"),
        ("reference/http.md", f"the body is larger than {limits.BODY_BYTES // MIB} MiB"),
        ("reference/http.md", f"or would take more than {limits.PARSED_BYTES // MIB} MiB of memory"),
        ("reference/http.md", f"headers of more than {limits.HEADER_BYTES // KIB} KiB"),
        ("reference/http.md", f"its `Retry-After: {limits.RETRY_AFTER_SECONDS}`"),
        ("how-to/operate.md", f"| containers that a rule changes | {MAX_CONTAINERS} in one pod |"),
        ("how-to/operate.md", f"| {MAX_TERMS:,} terms; {MAX_REQUIREMENTS:,} expressions, values and labels"),
        ("how-to/operate.md", f"| tolerations that a ladder reads | {MAX_TOLERATIONS:,} in one pod |"),
        ("how-to/operate.md", f"a cost of {REQUEST_COST:,} for one request"),
        ("how-to/operate.md", f"| what rules write into a pod | {MAX_PATCH_BYTES // MIB} MiB of JSON Patch |"),
        ("reference/http.md", f"It has at most {MAX_PATCH_BYTES // MIB} MiB"),
        ("reference/metrics.md", f"At most {decision_log.MAX_QUEUED_BYTES // MIB} MiB of lines wait"),
        ("reference/metrics.md", f"A line has at most {decision_log.MAX_LINE_BYTES // KIB} KiB"),
        ("reference/metrics.md", f"Names have at most {decision_log.MAX_TEXT} characters"),
        ("how-to/simulate.md", f"ends after {devices.MAX_STEPS:,} steps"),
        ("explanation/offered.md", f"after {LIFETIME_SECONDS:g} seconds in any case"),
        ("explanation/offered.md", f"at most {MAX_PER_NAMESPACE} reservations at once"),
        ("reference/ladders.md", f"| {MAX_CONTAINERS} |"),
        ("reference/ladders.md", f"| terms of required node affinity | {MAX_TERMS:,} |"),
        ("reference/ladders.md", f"expressions and their values, together | {MAX_REQUIREMENTS:,} |"),
        ("reference/ladders.md", f"| tolerations | {MAX_TOLERATIONS:,} |"),
        ("reference/injection.md", f"more than {MAX_CONTAINERS} containers"),
        ("explanation/offered.md", f"take {MAX_CAPACITIES_BYTES // MIB} MiB at most"),
        ("reference/metrics.md", f"writes what waits, for at most {decision_log.STOP_SECONDS:g} s"),
        ("reference/metrics.md", f"a burst of {events.BURST}, then one a second"),
    ],
)
def test_bounds_in_the_text_match_the_server(document: str, text: str) -> None:
    assert text.lower() in (REPOSITORY / "docs" / document).read_text().lower()


# The hooks and jobs in docs/how-to/ci.md


def documented(title: str) -> tuple[Any, str]:
    """Return a YAML file of the page on CI, or one of the rules that its jobs check, parsed and as it stands."""
    page = "write-and-test.md" if title.startswith("rules/") else "ci.md"
    (found,) = [b for b in blocks((REPOSITORY / "docs/how-to" / page).read_text()) if b.title == title]
    return yaml.safe_load(found.text), found.text


def test_the_documented_hooks_exist() -> None:
    defined = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    (repository,) = documented(".pre-commit-config.yaml")[0]["repos"]

    assert repository["hooks"] == [
        {name: value for name, value in {**hook, "language": "system"}.items() if name != "description"}
        for hook in defined
    ]
    (remote,) = documented(".pre-commit-config.yaml of a remote repository")[0]["repos"]
    assert [hook["id"] for hook in remote["hooks"]] == [hook["id"] for hook in defined]


def gitlab_commands() -> list[str]:
    commands: list[str] = documented(".gitlab-ci.yml")[0]["gpu-rules"]["script"]
    return commands


RULE_FILES = ("rules/ladder.yaml", "rules/ladder.test.yaml", "rules/sites.test.yaml", "rules/card.test.yaml")


def run_job(commands: list[str], files: Mapping[str, str], then: str = "true") -> str:
    """Run the commands of a job like a runner, which ends it at the first command that fails; return the output."""
    install, *others = commands
    assert install.startswith('pip install "$')
    rules = "".join(f"```yaml {name}\n{text}```\n" for name, text in files.items())
    script = f'$ {" && ".join(others)}; echo "exit code $?"; {then}\n'
    return renewed(f"{rules}```console\n{script}```\n").partition(script)[2]


def test_the_documented_job_passes_for_good_rules_and_fails_for_bad_ones() -> None:
    good = {name: documented(name)[1] for name in RULE_FILES}

    def output(**changed: tuple[str, str]) -> str:
        """Return the output for files with a text replaced, by their names without path and suffix."""
        files = {
            name: text.replace(*changed.get(name.split("/")[1].split(".")[0], ("", ""))) for name, text in good.items()
        }
        return run_job(gitlab_commands(), files)

    assert output().endswith("6 passed\ncoverage 100 %: 7 of 7\nexit code 0\n```\n")
    uncovered = "rules/ladder.yaml:8:18  nvidia.com/gpu  never requested\ncoverage 85.7 %: 6 of 7, less than 100 %\n"
    assert output(card=("/gpu: 1", "/mig-1g.10gb: 1")).endswith(f"{uncovered}exit code 1\n```\n")
    failing_test = output(ladder=("fallback: null", "fallback: x"))
    assert "5 passed, 1 failed\ncoverage 100 %: 7 of 7\n" in failing_test
    assert "exit code 1\n" in failing_test
    bad_rule = output(ladder=("rungs:", "rugns:"))
    assert "exit code 1\n" in bad_rule
    assert "passed" not in bad_rule


def test_gitlab_gets_the_failed_cases_and_the_coverage() -> None:
    job = documented(".gitlab-ci.yml")[0]["gpu-rules"]
    good = {name: documented(name)[1] for name in RULE_FILES}
    report = job["artifacts"]["reports"]["junit"]
    assert job["artifacts"]["when"] == "always"
    output = run_job(gitlab_commands(), good, f"cat {report}")
    # GitLab searches the log for the pattern between the slashes.
    assert re.findall(job["coverage"].strip("/"), output) == ["coverage 100 %"]
    wrong = good["rules/card.test.yaml"].replace(
        "expect: {limits: {main: {nvidia.com/gpu: 1", "expect: {limits: {main: {nvidia.com/gpu: 2"
    )
    failed = run_job(gitlab_commands(), {**good, "rules/card.test.yaml": wrong}, f"cat {report}")
    _, found, document = failed.removesuffix("```\n").partition("<testsuites")
    assert "exit code 1\n" in failed
    assert len(ET.fromstring(found + document).findall(".//failure")) == 1


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "## [Unreleased]\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_the_ways_name_functions_that_exist() -> None:
    ways = INTERNALS.read_text().partition("## Ways through the code")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `([^`]+\.py)` ((?:`\w+`(?:, )?)+)", ways, re.MULTILINE)
    assert len(steps) > 25
    for file, functions in steps:
        source = (REPOSITORY / file).read_text()
        for function in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^\s*(?:def|class) {function}\b", source, re.MULTILINE), f"{file}: {function}"
