"""Job of docs/how-to/ci.md that comments the answer of `gpu-rules diff` on a pull request."""

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

from tests.support.certificates import certified
from tests.support.git import commit, git, repository
from tests.support.server import environment
from tools.documents import REPOSITORY, blocks

WORKFLOW = ".github/workflows/gpu-rules-diff.yaml"
MARK = "<!-- gpu-rules diff -->\n"
BOT = {"login": "github-actions[bot]"}

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


def steps() -> list[dict[str, Any]]:
    (found,) = [b for b in blocks((REPOSITORY / "docs/how-to/ci.md").read_text()) if b.title == WORKFLOW]
    job = yaml.safe_load(found.text)["jobs"]["diff"]
    return [step for step in job["steps"] if "run" in step]


def step(name: str) -> dict[str, Any]:
    [found] = [step for step in steps() if step.get("name") == name]
    return found


def run(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does that names no shell: with `bash -e`."""
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    entry = commands / "gpu-rules"
    entry.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rules_engine.server "$@"\n')
    entry.chmod(0o755)
    given = environment(PATH=f"{commands}{os.pathsep}{os.environ['PATH']}", **variables)
    line = ["bash", "-e", "-c", script]
    return subprocess.run(line, cwd=folder / "work", env=given, capture_output=True, text=True, check=False)


def test_gpu_rules_is_installed_from_a_variable() -> None:
    assert steps()[0]["run"] == 'pip install "${{ vars.GPU_RULES }}"'


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

    done = run(tmp_path, step("Compare the rules")["run"], **files(tmp_path))

    assert done.returncode == 0, done.stderr
    assert printed in done.stderr if printed else not done.stderr
    assert (tmp_path / "output").read_text() == f"changed={changed}\n"
    written = (tmp_path / "work" / "diff.md").read_text()
    assert (tmp_path / "summary").read_text() == written
    assert ("Pod ml/train" in written) == (changed == "1")
    assert done.stdout


def test_rules_with_errors_fail_the_job(tmp_path: Path) -> None:
    merged(tmp_path, {"rules/ladder.yaml": LADDER}, {"rules/ladder.yaml": LADDER.replace("rungs", "rugns")})

    done = run(tmp_path, step("Compare the rules")["run"], **files(tmp_path))

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


def files(folder: Path) -> dict[str, str]:
    return {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary")}


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


def comment(folder: Path, comments: Comments, *, text: str, changed: str) -> subprocess.CompletedProcess[str]:
    (folder / "work").mkdir(exist_ok=True)
    (folder / "work" / "diff.md").write_text(text)
    found = step("Comment on the pull request")
    context = {
        "github.token": "secret",
        "steps.diff.outputs.changed": changed,
        "github.repository": "team/rules",
        "github.event.number": "7",
    }
    variables = {
        name: re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda match: context[match[1]], value)
        for name, value in found["env"].items()
    }
    with listening(comments, folder) as certificate:
        # gh takes the token of other servers than github.com from another variable.
        elsewhere = {"GH_HOST": f"localhost:{comments.port}", "GH_ENTERPRISE_TOKEN": variables["GH_TOKEN"]}
        own = {"SSL_CERT_FILE": str(certificate), "HOME": str(folder), "GH_CONFIG_DIR": str(folder / "gh")}
        return run(folder, found["run"], **variables, **elsewhere, **own)


needs_gh = pytest.mark.skipif(shutil.which("gh") is None, reason="needs gh, the command line of GitHub")


@needs_gh
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


@needs_gh
def test_a_pull_request_without_a_change_gets_no_comment(tmp_path: Path) -> None:
    comments = Comments()

    done = comment(tmp_path, comments, text="nothing changes\n", changed="0")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert comments.bodies == []
