"""The action of action.yml: its steps as a runner runs them, and the workflow of `gpu-rules init` that uses it."""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.support.authoring import cli
from tests.support.certificates import certified
from tests.support.git import commit, git, repository
from tests.support.server import environment
from tools.documents import REPOSITORY, blocks

ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())
MARK = "<!-- gpu-rules diff -->\n"
BOT = {"login": "github-actions[bot]"}
DIFF = {"cluster": "cluster.json", "workloads": "workloads"}
"""Inputs of the action in repositories of these tests."""

LADDER = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: a100}
spec:
  rungs: [{resource: nvidia.com/mig-3g.40gb}, {resource: nvidia.com/gpu, assume: true}]
"""

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml}
spec: {containers: [{name: main, image: cuda, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}]}
"""

CLUSTER = """\
{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}},
{"apiVersion": "v1", "kind": "PodList", "items": []}
]}
"""

CONTEXT = {
    "github.token": "secret",
    "github.repository": "team/rules",
    "github.event.number": "7",
    "github.action_path": str(REPOSITORY),
    "steps.python.outputs.python-path": sys.executable,
}


def step(name: str) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [step for step in ACTION["runs"]["steps"] if step.get("name") == name]
    return found


def run(
    folder: Path, name: str, inputs: Mapping[str, object] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a step of the action in the folder `work` as a runner does, with inputs and its context as variables."""
    entry = folder / "bin" / "gpu-rules"
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rules_engine.server "$@"\n')
    entry.chmod(0o755)
    values = {f"inputs.{key}": str(field["default"]) for key, field in ACTION["inputs"].items()}
    values |= {f"inputs.{key}": str(value) for key, value in (inputs or {}).items()} | CONTEXT
    found = step(name)
    own = {
        key: re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: values[match[1]], text)
        for key, text in found["env"].items()
        if key not in variables
    }
    given = environment(
        PATH=f"{entry.parent}{os.pathsep}{os.environ['PATH']}",
        RUNNER_TEMP=str(folder),
        GITHUB_OUTPUT=str(folder / "output"),
        GITHUB_STEP_SUMMARY=str(folder / "summary"),
        GITHUB_PATH=str(folder / "path"),
        **{**own, **variables},
    )
    assert found["shell"] == "bash"
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]]
    return subprocess.run(line, cwd=folder / "work", env=given, capture_output=True, text=True, check=False)


def test_expressions_stand_only_outside_of_scripts() -> None:
    """An input or a name of a branch in a script would be run as a part of it."""
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")] == []


def test_the_inputs_are_documented() -> None:
    page = (REPOSITORY / "docs/how-to/ci.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == [*ACTION["inputs"]]


def test_no_module_of_the_pull_request_is_run(tmp_path: Path) -> None:
    repository(tmp_path / "work", {"venv.py": "raise SystemExit"})
    done = run(tmp_path, "Install gpu-rules", ACTION=str(tmp_path / "absent"))
    assert (tmp_path / "gpu-rules/bin/pip").exists()
    assert "absent" in done.stderr


# The workflow of `init`


def workflow(folder: Path) -> dict[str, Any]:
    """Return the jobs of the workflow in a repository."""
    found: dict[str, Any] = yaml.safe_load((folder / ".github/workflows/gpu-rules.yaml").read_text())["jobs"]
    return found


def test_the_files_of_init_pass_its_jobs(tmp_path: Path) -> None:
    repository(tmp_path / "work", {"README.md": "Our rules."})
    assert cli("init", tmp_path / "work").exit_code == 0
    commit(tmp_path / "work", {})

    answers = run_jobs(tmp_path)

    assert [each.returncode for each in answers] == [0, 0, 0], answers
    assert (tmp_path / "output").read_text() == "changed=1\n"
    assert "Pod ml/train" in (tmp_path / "summary").read_text()


def test_the_repository_of_the_tutorial_passes_the_job_that_compares(tmp_path: Path) -> None:
    page, _, change = (REPOSITORY / "docs/tutorial/first-evening.md").read_text().partition("## Review a change\n")
    repository(tmp_path / "work", {"README.md": "Our rules."})
    assert cli("init", tmp_path / "work").exit_code == 0
    yaml_files = {block.title: block.text for block in blocks(page) if block.language == "yaml"}
    commit(tmp_path / "work", yaml_files)
    commit(tmp_path / "work", {block.title: block.text for block in blocks(change) if block.language == "yaml"})

    compared, checked, tested = run_jobs(tmp_path)

    assert (compared.returncode, checked.returncode) == (0, 0), compared.stderr
    assert "Job ml-nlp/tune" in (tmp_path / "summary").read_text()
    assert (tested.returncode, "title=a100%3A the team training gets a whole card" in tested.stdout) == (1, True)


def run_jobs(folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run the jobs of a repository's workflow for a pull request: the steps that their commands name."""
    names = {"check": "Check the rules", "diff": "Compare the rules", "test": "Test the rules"}
    answers = []
    for job in (workflow(folder / "work")[name] for name in ("diff", "rules")):
        checkout, action = job["steps"]
        assert checkout["uses"].startswith("actions/checkout@")
        assert (action["uses"], job["permissions"]["contents"]) == ("gpu-rules/gpu-rules@main", "read")
        answers += [run(folder, names[name], action["with"]) for name in action["with"]["commands"].split()]
    return answers


# The steps that check and test


@pytest.mark.parametrize(
    ("minimum", "code", "text"),
    [("", 0, ""), ("100", 1, "nvidia.com/gpu is never requested"), ("33", 0, "nvidia.com/gpu is never requested")],
)
def test_problems_failed_cases_and_lines_are_annotations(tmp_path: Path, minimum: str, code: int, text: str) -> None:
    test = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: a100}
spec:
  cluster: {nodes: [{name: one, cards: 4}]}
  cases:
    - {name: falls, podFile: ../../workloads/train.yaml, expect: {limits: {main: {nvidia.com/gpu: 1}}}}
"""
    files = {"a/rules/ladder.yaml": LADDER, "a/rules/test.yaml": test, "b/rules.yaml": LADDER.replace("a100", "b")}
    repository(tmp_path / "work", {**files, "workloads/train.yaml": POD})
    inputs = {"rules": "a/rules\nb/rules.yaml\n", "coverage-min": minimum}

    checked = run(tmp_path, "Check the rules", inputs)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith("::warning file=b/rules.yaml,line=5,")
    tested = run(tmp_path, "Test the rules", {**inputs, "rules": "a/rules"})
    assert (tested.returncode, text in tested.stdout) == (code, True), tested.stdout
    commit(tmp_path / "work", {"a/rules/test.yaml": test.replace("gpu: 1", "gpu: 2")})
    failed = run(tmp_path, "Test the rules", inputs)
    assert (failed.returncode, failed.stdout.startswith("::error file=a/rules/test.yaml,line=7,")) == (1, True)


# The step that compares


@pytest.mark.parametrize(
    ("before", "after", "changed", "printed"),
    [
        ({"rules/ladder.yaml": LADDER}, {"rules/ladder.yaml": LADDER.replace("gpu,", "mig-1g.10gb,")}, "1", ""),
        ({"rules/ladder.yaml": LADDER}, {"rules/ladder.yaml": f"# a comment\n{LADDER}"}, "0", ""),
        ({"README.md": "no rules yet"}, {"rules/ladder.yaml": LADDER}, "1", "no rules before the change"),
    ],
    ids=["changed", "unchanged", "first rules"],
)
def test_a_merge_is_compared_with_its_base(
    tmp_path: Path, before: Mapping[str, str], after: Mapping[str, str], changed: str, printed: str
) -> None:
    merged(tmp_path, before, after)

    done = run(tmp_path, "Compare the rules", DIFF)

    assert done.returncode == 0, done.stderr
    assert printed in done.stderr if printed else not done.stderr
    assert (tmp_path / "output").read_text() == f"changed={changed}\n"
    written = (tmp_path / "gpu-rules-diff.md").read_text()
    assert (tmp_path / "summary").read_text() == written
    assert ("Pod ml/train" in written) == (changed == "1")
    assert done.stdout


def test_several_folders_are_compared_on_several_clusters(tmp_path: Path) -> None:
    old = {"a/ladder.yaml": LADDER, "b/other.yaml": LADDER.replace("a100", "other"), "more.json": CLUSTER}
    merged(tmp_path, old, {"a/ladder.yaml": LADDER.replace("gpu,", "mig-1g.10gb,")})

    inputs = {"rules": "a b", "cluster": "cluster.json\nmore.json\n", "workloads": "workloads/train.yaml"}
    done = run(tmp_path, "Compare the rules", inputs)

    assert (done.returncode, done.stderr) == (0, "")
    summary = (tmp_path / "summary").read_text()
    assert "`git:HEAD^1:a git:HEAD^1:b → a b`" in summary
    assert all(f"- {cluster}: GPUs of admitted pods" in summary for cluster in ("cluster", "more"))


def test_rules_with_errors_fail_the_job(tmp_path: Path) -> None:
    merged(tmp_path, {"rules/ladder.yaml": LADDER}, {"rules/ladder.yaml": LADDER.replace("rungs", "rugns")})

    done = run(tmp_path, "Compare the rules", DIFF)

    assert done.returncode == 1
    assert "rules/ladder.yaml:5:3: error: " in done.stdout + done.stderr
    assert not (tmp_path / "output").exists()


def merged(folder: Path, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Make a clone as actions/checkout does: the merge of a pull request, with the two commits that it merges."""
    origin = repository(folder / "origin", {**before, "workloads/train.yaml": POD, "cluster.json": CLUSTER})
    git(origin, "checkout", "--quiet", "-b", "change")
    commit(origin, after)
    git(origin, "checkout", "--quiet", "main")
    git(origin, "merge", "--quiet", "--no-ff", "--message=merge", "change")
    git(origin, "commit", "--quiet", "--allow-empty", "--message=later, on the base")
    git(folder, "init", "--quiet", "work")
    git(folder / "work", "fetch", "--quiet", "--depth=2", f"file://{origin}", git(origin, "rev-parse", "HEAD^"))
    git(folder / "work", "checkout", "--quiet", "FETCH_HEAD")


# The step that comments, with GitHub's own command


class Comments:
    """The comments of a pull request, in pages of two, as GitHub's REST API has them."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.port = 0

    def add(self, body: str, user: Mapping[str, str] = BOT) -> None:
        self.comments.append({"id": 100 + len(self.comments), "user": user, "body": body})

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments]

    def handler(self) -> type[BaseHTTPRequestHandler]:
        comments = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                assert url.path == "/api/v3/repos/team/rules/issues/7/comments"
                page = int(parse_qs(url.query).get("page", ["1"])[0])
                following = f"https://localhost:{comments.port}{url.path}?page={page + 1}"
                more = {"Link": f'<{following}>; rel="next"'} if len(comments.comments) > 2 * page else {}
                self._answer(comments.comments[2 * page - 2 : 2 * page], more)

            def do_POST(self) -> None:
                assert self.path == "/api/v3/repos/team/rules/issues/7/comments"
                comments.add(self._body())
                self._answer(comments.comments[-1], {}, 201)

            def do_PATCH(self) -> None:
                found = re.fullmatch(r"/api/v3/repos/team/rules/issues/comments/(\d+)", self.path)
                assert found is not None
                [comment] = [comment for comment in comments.comments if comment["id"] == int(found[1])]
                comment["body"] = self._body()
                self._answer(comment, {})

            def _body(self) -> str:
                assert self.headers["Authorization"] == "token secret"
                body: str = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
                return body

            def _answer(self, document: object, headers: Mapping[str, str], status: int = 200) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler


@contextmanager
def listening(comments: Comments, folder: Path) -> Iterator[Path]:
    """Serve comments over HTTPS; yield the file of the certificate."""
    certificate, key = certified("localhost").write(folder / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), comments.handler()) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        comments.port = server.server_port
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield certificate
        finally:
            server.shutdown()
            thread.join()


FAKE_GH = """\
import json, ssl, subprocess, sys
from os import environ
from urllib.request import Request, urlopen

arguments = sys.argv[2:]  # after `api`
names = [each for each in arguments if each in ("--jq", "--method", "--field")]
options = {name: arguments.pop(arguments.index(name) + 1) for name in names}
(path,) = [each for each in arguments if not each.startswith("--")]
body = None
if "--field" in options:
    name, _, file = options["--field"].partition("=@")
    body = json.dumps({name: open(file).read()}).encode()
following = "https://" + environ["GH_HOST"] + "/api/v3/" + path
while following:
    headers = {"Authorization": "token " + environ["GH_TOKEN"]}
    request = Request(following, body, headers, method=options.get("--method"))
    with urlopen(request, context=ssl.create_default_context(cafile=environ["SSL_CERT_FILE"])) as answer:
        following = answer.headers.get("Link", "<>")[1:].partition(">")[0] if "--paginate" in arguments else ""
        text = answer.read()
    if "--jq" in options:
        subprocess.run(["jq", "--raw-output", options["--jq"]], input=text, check=True)
"""
"""The part of GitHub's command that the step needs, on machines without it."""


def comment(folder: Path, comments: Comments, *, text: str, changed: str) -> subprocess.CompletedProcess[str]:
    (folder / "work").mkdir(exist_ok=True)
    (folder / "gpu-rules-diff.md").write_text(text)
    if shutil.which("gh") is None:
        gh = folder / "bin" / "gh"
        gh.parent.mkdir(exist_ok=True)
        gh.write_text(f"#!{sys.executable}\n{FAKE_GH}")
        gh.chmod(0o755)
    with listening(comments, folder) as certificate:
        # gh takes the token of other servers than github.com from another variable.
        elsewhere = {"GH_HOST": f"localhost:{comments.port}", "GH_ENTERPRISE_TOKEN": CONTEXT["github.token"]}
        own = {"SSL_CERT_FILE": str(certificate), "HOME": str(folder), "GH_CONFIG_DIR": str(folder / "gh")}
        return run(folder, "Comment on the pull request", {}, CHANGED=changed, **elsewhere, **own)


def test_a_change_is_commented_once_and_the_comment_is_updated(tmp_path: Path) -> None:
    comments = Comments()
    comments.add("Nice.", {"login": "someone"})
    comments.add(f"{MARK}of somebody else", {"login": "someone"})
    comments.add("of another workflow")

    first = comment(tmp_path, comments, text='**1** "pod" `$x`\n@-\n', changed="1")
    assert (first.returncode, first.stderr) == (0, "")
    assert comments.bodies[3:] == [f'{MARK}**1** "pod" `$x`\n@-\n']

    second = comment(tmp_path, comments, text="nothing changes any more\n", changed="0")
    assert (second.returncode, second.stderr) == (0, "")
    assert comments.bodies[3:] == [f"{MARK}nothing changes any more\n"]
    assert comments.bodies[:3] == ["Nice.", f"{MARK}of somebody else", "of another workflow"]


def test_a_pull_request_without_a_change_gets_no_comment(tmp_path: Path) -> None:
    comments = Comments()

    done = comment(tmp_path, comments, text="nothing changes\n", changed="0")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert comments.bodies == []
