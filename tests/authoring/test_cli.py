"""How the commands behave as programs: terminals, pipes, interrupts, usage."""

import errno
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import click
import jsonschema
import pytest

from rules_engine.cli import Command, Root
from rules_engine.loading import KINDS, schema
from tests.support.authoring import cli, ladder, write

PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rules_engine.cli import COMMANDS, Root; Root('gpu-rules', commands=list(COMMANDS))()"
)
"""The commands as a process; interrupts count even where the tests run in the background."""

ROOT = Path(__file__).parents[2]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(tmp_path, {"a.yaml": ladder("mig", "nvidia.com/gpu").replace("rungs", "rugns")})


def on_a_terminal(arguments: list[str], **more: str) -> str:
    """What a command writes to a terminal of 40 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 40))
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=environment(**more)):
        os.close(theirs)
        written = b""
        while chunk := _read(ours):
            written += chunk
    os.close(ours)
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


def test_a_terminal_gets_colours(bad: Path) -> None:
    assert "\x1b[1;31merror: " in on_a_terminal(command("check", bad))


def test_no_color_is_respected(bad: Path) -> None:
    written = on_a_terminal(command("check", bad), NO_COLOR="1")
    assert "error: " in written
    assert "\x1b" not in written


def test_a_narrow_terminal_loses_nothing(tmp_path: Path) -> None:
    rules = write(tmp_path, {"rules.yaml": ladder("mig", "nvidia.com/gpu", "nvidia.com/mig-2g.20gb")})
    write(tmp_path, {"pod.yaml": "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"})
    arguments = command("explain", "-f", tmp_path / "pod.yaml", "--rules", rules / "rules.yaml")
    assert f"skipped: the pod asks for none of its resources  {tmp_path}/rules.yaml:3:18" in on_a_terminal(
        arguments, NO_COLOR="1"
    )


def test_a_pipe_gets_no_colours_and_unbroken_lines(bad: Path) -> None:
    result = subprocess.run(command("check", bad), capture_output=True, text=True, env=environment(), check=False)
    assert "\x1b" not in result.stdout
    assert result.stdout.splitlines()[0].endswith("[unknown-field]")
    assert (result.returncode, result.stderr) == (1, "")


def test_a_terminal_of_few_characters_gets_others_in_their_place(tmp_path: Path) -> None:
    write(tmp_path, {"pod.yaml": "kind: Pod\nmetadata: {name: é}\nspec: {containers: [{name: c}]}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.startswith(b"Pod/? in namespace default\n")


def test_marks_have_words_in_their_place_where_a_terminal_has_none(tmp_path: Path) -> None:
    main = "{name: c, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}"
    write(tmp_path, {"pod.yaml": f"kind: Pod\nspec: {{containers: [{main}]}}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert b"not nvidia.com/mig-2g.20gb: asked for, but no node offers 1\n" in result.stdout
    assert b"ok nvidia.com/gpu: assumed" in result.stdout
    assert b"nvidia.com/mig-2g.20gb -> nvidia.com/gpu" in result.stdout
    assert b"?" not in result.stdout
    with pytest.raises(UnicodeDecodeError):  # it is for writing
        b"\xff".decode("ascii", "gpu-rules")


def test_ctrl_c_ends_quietly_with_130(tmp_path: Path) -> None:
    fifo = tmp_path / "pod.yaml"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        command("explain", "-f", fifo), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    writer = os.open(fifo, os.O_WRONLY)  # returns when the command has begun to read
    process.send_signal(signal.SIGINT)
    os.close(writer)  # what comes just before the command waits would not wake it
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("arguments", [["check", "a.yaml"], ["check", "a.yaml", "--output", "json"], ["schema"]])
def test_a_reader_that_went_away_gets_no_traceback(bad: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        command(*arguments), cwd=bad, stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.parametrize("arguments", [["check", "a.yaml"], ["check", "a.yaml", "--output", "json"], ["--help"]])
def test_output_that_has_no_room_is_told_in_a_line(bad: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            command(*arguments), cwd=bad, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    message = b"gpu-rules: the output cannot be written: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, message)


def test_closed_output_is_no_error(bad: Path) -> None:
    line = f"{shlex.join(command('check', 'a.yaml'))} >&-"
    result = subprocess.run(["/bin/sh", "-c", line], cwd=bad, stderr=subprocess.PIPE, env=environment(), check=False)
    assert (result.returncode, result.stderr) == (1, b"")


def test_other_errors_of_the_system_are_not_taken_for_a_full_disk() -> None:
    @click.command(cls=Command)
    def fails() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere.yaml")

    with pytest.raises(OSError, match=r"somewhere\.yaml"):
        Root("gpu-rules", commands=[fails]).main(["fails"], standalone_mode=False)


def test_a_path_of_rules_that_is_not_there_is_told_under_the_options_name(bad: Path) -> None:
    result = cli("explain", "-f", bad / "a.yaml", "--rules", bad / "a.yaml", "absent.yaml")
    assert result.exit_code == 2
    assert "Invalid value for '--rules': Path 'absent.yaml' does not exist." in result.stderr


def test_help_imports_nothing_but_the_command_line() -> None:
    program = (
        "import sys, rules_engine.cli; others = ('rules_engine.', 'rich', 'yaml', 'jsonschema', 'lark'); "
        "print([name for name in sys.modules if name.startswith(others) and not name.startswith('rules_engine.cli')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )
    assert result.stdout == "['rules_engine.model', 'rules_engine.model.names']\n"


@pytest.mark.parametrize("kind", KINDS)
def test_schema_prints_the_schema_of_a_kind_in_any_case(kind: str) -> None:
    for written in (kind, kind.lower()):
        assert json.loads(cli("schema", written).stdout) == schema(kind)


def test_an_unknown_kind_is_wrong_usage_with_the_nearest_name() -> None:
    result = cli("schema", "FalbackLader")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown kind 'FalbackLader' (did you mean 'FallbackLadder'?)" in result.stderr


def test_all_schemas_in_one_accept_each_kind_and_nothing_else() -> None:
    combined = json.loads(cli("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(combined)
    validator = jsonschema.Draft202012Validator(combined)
    for kind in KINDS:
        (example,) = schema(kind)["examples"]
        validator.validate(example)
        assert not validator.is_valid({**example, "kind": "Other"})
        assert not validator.is_valid({**example, "spec": {"x": 1}})
    assert "$id" not in json.dumps(combined)


def test_every_reference_of_all_schemas_in_one_leads_somewhere() -> None:
    combined = json.loads(cli("schema").stdout)
    references = json.dumps(combined).split('"$ref": "#/$defs/')[1:]
    assert {reference.partition('"')[0] for reference in references} <= combined["$defs"].keys()
