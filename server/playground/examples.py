"""Examples of the playground, which tests.support.playground collects from the documents and the packaged files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict


class Example(TypedDict):
    """An example: its texts by file name. One with a cluster only leaves the other texts unchanged."""

    group: str
    title: str
    texts: dict[str, str]


EXAMPLES: Sequence[Example] = json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8"))
"""All examples, the first of which the page shows."""


def write_texts(folder: str, texts: Mapping[str, str]) -> None:
    """Write texts to files of a folder. Line ends are kept, since they count in locations."""
    for name, text in texts.items():
        (Path(folder) / name).write_text(text, encoding="utf-8", newline="")
