"""Rule files of git revisions."""

import os
import sys
from contextlib import chdir, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import active_count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.files import find_files, read_file
from rules_engine.model.problems.problem import Problems
from rules_engine.rules.sources import git_files
from rules_engine.rules.sources.git_files import LEAVES, SUBMODULE, revision_files
from tests.support.git import commit, git, repository


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which is empty."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def read(path: str, revision: str = "HEAD") -> tuple[dict[str, str], list[str]]:
    """Return texts by name, and problems."""
    diagnostics = Problems()
    threads = active_count()
    files = revision_files(revision, path, diagnostics)
    assert active_count() == threads, "the caller may fork"
    return {file.name: file.text for file in files}, [str(problem) for problem in diagnostics.items]


def refused(path: str, revision: str = "HEAD") -> str:
    """Return the only problem of a path without files, without its code."""
    texts, problems = read(path, revision)
    assert texts == {}
    [problem] = problems
    return problem


def test_a_folder_has_the_same_files_as_a_checkout(here: Path) -> None:
    names = ["b.yaml", "a.yml", "c/d.json", "c/.hidden.yaml", ".github/e.yaml", "c/notes.md", "a.d/f.yaml", "é.yaml"]
    links = {"link.yaml": "c/d.json", "c/up": "..", "again": "c", "gone": "nowhere", "README": "b.yaml"}
    repository(here, {name: f"text of {name}" for name in names}, links)
    texts, problems = read(".")
    on_disk = {f"git:HEAD:./{path}": path.read_text(encoding="utf-8") for path in find_files([Path()], Problems())}
    assert list(texts.items()) == list(on_disk.items())
    assert problems == []


NAMES = st.sampled_from(["a", "b", "c.yaml", "d.json", "e.md"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
INSIDE = st.lists(st.sampled_from(["a", "b", "c.yaml", "."]), min_size=1, max_size=3).map("/".join)


@given(files=st.sets(PATHS, min_size=1, max_size=8), links=st.dictionaries(PATHS, INSIDE, max_size=6), data=st.data())
def test_any_tree_has_the_same_files_as_its_checkout(
    files: set[str], links: dict[str, str], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder, chdir(folder):
        git(Path(), "init", "--quiet")
        for name in sorted(files):
            with suppress(OSError):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text(name, encoding="utf-8")
        for name, target in links.items():
            with suppress(OSError):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                up = data.draw(st.integers(0, len(Path(name).parent.resolve().relative_to(Path.cwd()).parts)))
                Path(name).symlink_to("../" * up + target)
        commit(Path(), {})
        path = data.draw(st.sampled_from([".", *files, *links]))
        diagnostics = Problems()
        contents = (read_file(file, diagnostics) for file in find_files([Path(path)], diagnostics))
        base = "git:HEAD:./" if path == "." else "git:HEAD:"
        assert read(path)[0] == {f"{base}{file.name}": file.text for file in contents if file is not None}


def test_a_link_into_a_file_hides_no_other_file(here: Path) -> None:
    repository(here, {"c.yaml": "c"}, {"b": "c.yaml", "a/c.yaml": "../b/."})
    problems = Problems()
    contents = (read_file(file, problems) for file in find_files([Path()], problems))
    assert {file.name: file.text for file in contents if file is not None} == {"c.yaml": "c"}
    assert read(".")[0] == {"git:HEAD:./c.yaml": "c"}


@pytest.mark.parametrize("path", ["rules", "rules/", "./rules", "rules/../rules", "linked"])
def test_a_path_of_a_folder(here: Path, path: str) -> None:
    repository(here, {"rules/a.yaml": "a", "other.yaml": "b"}, {"linked": "rules"})
    assert read(path) == ({f"git:HEAD:{path.rstrip('/')}/a.yaml": "a"}, [])


def test_a_path_counts_from_the_root_or_with_a_dot_from_the_current_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(here, {"a.yaml": "root", "inside/a.yaml": "inside"})
    monkeypatch.chdir(here / "inside")
    assert read("a.yaml")[0] == {"git:HEAD:a.yaml": "root"}
    assert read("./a.yaml")[0] == {"git:HEAD:./a.yaml": "inside"}
    assert read("../a.yaml")[0] == {"git:HEAD:../a.yaml": "root"}


def test_each_revision_has_its_own_files(here: Path) -> None:
    repository(here, {"a.yaml": "old"})
    commit(here, {"a.yaml": "new"})
    git(here, "tag", "--annotate", "--message=x", "v1")
    (here / "a.yaml").write_text("not committed", encoding="utf-8")
    texts = [read("a.yaml", revision)[0] for revision in ("HEAD", "main~1", "v1", git(here, "rev-parse", "HEAD")[:12])]
    assert [text for each in texts for text in each.values()] == ["new", "old", "new", "new"]


def test_a_repository_with_sha256(here: Path) -> None:
    git(here, "init", "--quiet", "--object-format=sha256")
    commit(here, {"rules/a.yaml": "a"})
    assert read("rules") == ({"git:HEAD:rules/a.yaml": "a"}, [])


def test_a_revision_that_does_not_exist_is_an_error(here: Path) -> None:
    repository(here, {"a.yaml": "a"})
    for revision in ("absent", "--batch-all-objects", "HEAD@{1 day ago} x", "0" * 40):
        assert refused(".", revision) == (
            f"git:{revision}:.:1:1: error: cannot be read: revision '{revision}' not found: "
            "fetch it first if this is a shallow clone [unreadable-file]"
        )


@pytest.mark.parametrize("path", ["absent", "rules/absent.yaml", "rules/a.yaml/b", "rules/a.yaml/.", "broken.yaml"])
def test_a_path_that_does_not_exist_is_an_error(here: Path, path: str) -> None:
    repository(here, {"rules/a.yaml": "a"}, {"broken.yaml": "nowhere"})
    assert refused(path) == f"git:HEAD:{path}:1:1: error: file or folder not found [missing-file]"


def test_a_broken_link_hides_no_other_file_of_its_folder(here: Path) -> None:
    repository(here, {"a.yaml": "a"}, {"broken.yaml": "nowhere"})
    texts, problems = read(".")
    assert list(texts) == ["git:HEAD:./a.yaml"]
    assert problems == ["git:HEAD:./broken.yaml:1:1: error: file or folder not found [missing-file]"]


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.yaml", "../../outside.yaml", "a/../../x"])
def test_a_link_that_leaves_the_tree_is_refused(here: Path, target: str) -> None:
    (here.parent / "outside.yaml").write_text("outside", encoding="utf-8")
    repository(here, {"a/b.yaml": "b"}, {"link.yaml": target})
    problem = f"git:HEAD:%s:1:1: error: {LEAVES} [not-a-regular-file]"
    assert refused("link.yaml") == problem % "link.yaml"
    assert read(".") == ({"git:HEAD:./a/b.yaml": "b"}, [problem % "./link.yaml"])
    assert refused("..") == problem % ".."


def test_links_in_a_circle_are_an_error(here: Path) -> None:
    repository(here, {"inside/c.yaml": "c"}, {"a.yaml": "b.yaml", "b.yaml": "a.yaml", "inside/loop": "loop"})
    assert refused("a.yaml") == (
        "git:HEAD:a.yaml:1:1: error: cannot be read: Too many levels of symbolic links [unreadable-file]"
    )
    assert read("inside") == ({"git:HEAD:inside/c.yaml": "c"}, [])


def git_hash(folder: Path, content: str | bytes, kind: str = "blob") -> str:
    """Store an object, even a malformed one; return its hash."""
    file = folder.parent / "object"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return git(folder, "hash-object", "-t", kind, "--literally", "-w", str(file))


def entry(mode: str, name: str, hash: str) -> bytes:
    """Return an entry of a folder."""
    return f"{mode} {name}\0".encode() + bytes.fromhex(hash)


def test_a_submodule_is_refused(here: Path) -> None:
    repository(here, {"a.yaml": "a"})
    git(here, "update-index", "--add", "--cacheinfo", f"160000,{git(here, 'rev-parse', 'HEAD')},module")
    git(here, "commit", "--quiet", "--message=module")
    problem = f"git:HEAD:%s:1:1: error: {SUBMODULE} [not-a-regular-file]"
    assert refused("module") == problem % "module"
    assert refused("module/x") == problem % "module/x"
    assert read(".")[1] == [problem % "./module"]


def test_a_folder_without_rule_files_is_an_error(here: Path) -> None:
    repository(here, {"a/notes.md": "a"})
    assert refused("a") == "git:HEAD:a:1:1: error: no .yaml, .yml or .json file in this folder [no-files]"


def test_a_file_that_is_not_utf_8_is_an_error(here: Path) -> None:
    git(here, "init", "--quiet")
    (here / "a.yaml").write_bytes(b"a: \xff\n")
    commit(here, {})
    assert refused("a.yaml") == (
        "git:HEAD:a.yaml:1:4: error: byte 0xFF is not UTF-8: save the file as UTF-8 [not-utf-8]"
    )


def test_a_file_whose_name_is_not_utf_8_is_read(here: Path) -> None:
    git(here, "init", "--quiet")
    (here / os.fsdecode(b"\xff.yaml")).write_text("a", encoding="utf-8")
    commit(here, {})
    assert list(read(".")[0].values()) == ["a"]


def test_sizes_are_bounded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_files, "MAX_FILE_BYTES", 2**20)
    repository(here, {"large.yaml": "x" * (2**20 + 1), "next.yaml": "y"})
    large = "git:HEAD:./large.yaml:1:1: error: the file is larger than 1 MiB [file-too-large]"
    assert read(".") == ({"git:HEAD:./next.yaml": "y"}, [large])


def test_a_path_outside_of_a_repository_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    for path in ("rules", "./rules"):
        assert "cannot be read: fatal: not a git repository" in refused(path)


def test_an_object_that_is_not_stored_is_an_error(here: Path) -> None:
    repository(here, {"a.yaml": "a"})
    hash = git(here, "rev-parse", "HEAD:a.yaml")
    (here / ".git/objects" / hash[:2] / hash[2:]).unlink()
    assert f"object {hash} is not stored in this repository" in refused("a.yaml")


def test_a_malformed_folder_is_an_error(here: Path) -> None:
    repository(here, {"a.yaml": "a"})
    tree = git_hash(here, "100644 a.yaml", "tree")
    assert "cannot be read: fatal: " in refused("a.yaml", tree)


def test_modes_of_folders_may_begin_with_0(here: Path) -> None:
    repository(here, {"rules/a.yaml": "a"})
    root = git_hash(here, entry("040000", "rules", git(here, "rev-parse", "HEAD:rules")), "tree")
    assert read("rules", root) == ({f"git:{root}:rules/a.yaml": "a"}, [])


def test_no_filter_runs(here: Path, tmp_path: Path) -> None:
    repository(here, {".gitattributes": "*.yaml filter=marking\n", "a.yaml": "a"})
    git(here, "config", "filter.marking.smudge", f"touch '{tmp_path}/ran'; cat")
    assert read("a.yaml") == ({"git:HEAD:a.yaml": "a"}, [])
    assert not (tmp_path / "ran").exists()
    (here / "a.yaml").unlink()
    git(here, "checkout-index", "a.yaml")
    assert (tmp_path / "ran").exists(), "a checkout would have run it"


def test_git_fetches_what_a_partial_clone_lacks(here: Path, tmp_path: Path) -> None:
    source = repository(tmp_path / "source", {"a.yaml": "a"})
    git(source, "config", "uploadpack.allowFilter", "true")
    git(here, "clone", "--quiet", "--no-checkout", "--filter=blob:none", source.as_uri(), ".")
    assert read("a.yaml") == ({"git:HEAD:a.yaml": "a"}, [])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("", "git ended without a message"),
        ("import sys; sys.stderr.write('fatal: a\\nb\\x1b[m' + 'x' * 2000)\n", "fatal: a b\\x1b[mxxx"),
    ],
)
@pytest.mark.parametrize("path", ["rules", "./rules"])
def test_a_failure_of_git_is_reported_in_one_line(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str, path: str
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{script}raise SystemExit(1)\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    problem = refused(path)
    assert len(problem) < 700
    assert message in problem


@pytest.mark.parametrize("path", ["rules", "./rules"])
def test_git_that_is_not_installed_is_reported(here: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("PATH", str(here))
    assert "cannot be read: git cannot be run: No such file or directory" in refused(path)
