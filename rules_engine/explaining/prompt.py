"""The prompt of `eval`, with history and completion. The only module that imports prompt_toolkit."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

PROMPT = "> "

Completions = Callable[[str], tuple[str, Sequence[str]]]
"""A function that returns the last word of a text and the names that complete it."""


class _Completer(Completer):
    def __init__(self, completions: Completions) -> None:
        self._completions = completions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the base class's signature
        word, names = self._completions(document.text_before_cursor)
        return (Completion(name, start_position=-len(word)) for name in names)


def prompt_lines(completions: Completions) -> Iterator[str]:
    """Yield the lines that the user enters, without empty ones, until Ctrl-D. Raises KeyboardInterrupt for Ctrl-C."""
    session: PromptSession[str] = PromptSession(
        PROMPT, history=InMemoryHistory(), completer=_Completer(completions), complete_while_typing=False
    )
    while True:
        try:
            line = session.prompt()
        except EOFError:
            return
        if line.strip():
            yield line
