"""`make fuzz` prints failures and exits with 1."""

import pytest

from tests.fuzz import __main__ as fuzz


@pytest.mark.parametrize(
    ("found", "code", "line"), [([], 0, "part: no failures"), (["a case"], 1, "part: 1 failure\na case")]
)
def test_failures_are_printed_and_set_the_exit_code(
    found: list[str], code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[tuple[float, int]] = []

    def run(seconds: float, seed: int) -> list[str]:
        given.append((seconds, seed))
        return found

    monkeypatch.setattr(fuzz, "PARTS", {"part": run})

    assert fuzz.main(["30", "1"]) == code
    assert given == [(30, 1)]
    printed = capsys.readouterr().out
    assert printed.startswith("seed 1, 30 s")
    assert printed.endswith(f"{line}\n")
