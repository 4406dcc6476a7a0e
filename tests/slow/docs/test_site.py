"""`make docs`: the site of the documents."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import PATIENCE_SECONDS
from tools.documents import REPOSITORY

DOCS = REPOSITORY / "docs"


def built(source: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    command = ("sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--fresh-env")
    return subprocess.run(
        [sys.executable, "-m", *command, "--doctree-dir", site / "trees", source, site],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(DOCS, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_page_is_built_and_in_the_contents(site: Path) -> None:
    pages = {str(path.relative_to(DOCS).with_suffix(".html")) for path in DOCS.rglob("*.md")}
    index = (site / "index.html").read_text()
    contents = index.partition('<div class="sidebar-tree">')[2].partition("</div>")[0]

    assert {page for page in pages if not (site / page).exists()} == set()
    assert set(re.findall(r'class="reference internal" href="([^"#]+)"', contents)) == pages - {"index.html"}


def test_files_in_examples_have_their_names(site: Path) -> None:
    page = (site / "how-to" / "write-and-test.html").read_text()

    assert '<div class="code-block-caption"><span class="caption-text">rules/ladder.yaml</span>' in page


def test_links_to_pages_show_their_titles(site: Path) -> None:
    pages = {page.name: page.read_text() for page in site.rglob("*.html")}

    assert {name: found for name, text in pages.items() if (found := re.findall(r"<a [^>]*>[^<]*\.md<", text))} == {}
    assert (
        '<a class="reference internal" href="cel.html"><span class="std std-doc">CEL</span></a>' in pages["rules.html"]
    )


def test_no_link_or_picture_leads_nowhere(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src|srcset)="([^"#?:]+)[^":]*"', page.read_text()):
            if not (page.parent / target).exists():
                missing.append((page.name, target))

    assert missing == []


def test_links_to_other_files_lead_to_the_repository(site: Path) -> None:
    targets = {
        target
        for page in site.rglob("*.html")
        for target in re.findall(
            r'href="https://github.com/gpu-rules/gpu-rules/(?:blob|tree)/main/([^"#?]*)', page.read_text()
        )
    }

    assert "CONTRIBUTING.md" in targets
    assert {target for target in targets if not (REPOSITORY / target).exists()} == set()


def test_a_link_to_a_missing_page_heading_or_file_fails(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text((DOCS / "conf.py").read_text())
    links = ("[a](#absent)", "[b](absent.md)", "[c](../absent.md)", "![d](absent.png)")
    (source / "index.md").write_text("# Broken\n\n" + "\n\n".join(links) + "\n")

    done = built(source, tmp_path / "site")

    assert done.returncode == 1
    assert "WARNING: ../absent.md not found" in done.stderr
    assert set(re.findall(r"index\.md:(\d+): WARNING", done.stderr)) == {"3", "5", "9"}
