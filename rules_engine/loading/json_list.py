"""Kubernetes lists in JSON, read as a stream: the items one by one, whatever the size of the list.

Memory is bounded by MAX_ITEM_BYTES. An item has its place in the file.
"""

import codecs
import json
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from rules_engine.loading.files import MAX_FILE_BYTES
from rules_engine.loading.json_items import ListError, TooDeepError, scan_lenient
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.source import Location

MAX_ITEM_BYTES = MAX_FILE_BYTES
"""Largest item: twice the largest object of etcd (1.5 MiB), indented."""

CHUNK_BYTES = 1024 * 1024
"""Bytes per read."""

TOKEN_CHARACTERS = 16
"""Characters of the longest token other than strings and numbers: an error this close to the end of the text may come
from a token that is cut."""

_BLANKS = " \t\r\n"

Item = TypeVar("Item")
Read = TypeVar("Read")

Scan = Callable[[str, int, int], tuple[Item, int]]
"""A reader of the item at an offset of a text and a column of its line; it returns the item and the offset of its
end. Raises json.JSONDecodeError if the text is not JSON or ends before the item, and ListError."""


class Readable(Protocol):
    """A binary file, or what reads one."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""


class JsonList(Generic[Item]):
    """Reader of a list: the text from the current value on, and the value's place.

    `head`: the bytes already read. `members`: the members of the list read so far, except its items; none if they are
    larger than MAX_ITEM_BYTES, which sets `self.too_large`. `listed`: the object has items.
    """

    def __init__(self, name: str, head: bytes, file: Readable, limit: int, scan: Scan[Item]) -> None:
        self.members: dict[str, Json] = {}
        self.too_large = False
        self.listed = False
        self._name = name
        self._file = file
        self._left = limit - len(head)
        self._limit = limit
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = scan
        self._ended = False
        self._line, self._column, self._mark = 1, 1, 0
        """The last place that was computed, and its offset in the text."""
        self._at = 0
        """The offset of the next value in the text."""
        self._length = 0
        """The characters of the last value."""
        self._text = ""
        self._head = head

    def items(self) -> Iterator[tuple[Location, Item]]:
        """Yield the items of the list, each with its place. Raises ListError; `here` is then the place.

        An object without items, such as a single Pod, yields none: it is in `members`.
        """
        size = 0
        try:
            self._feed(self._head)
            self._head = b""
            self._expect("{")
            for _ in self._each("}"):
                name = self._next(scan_lenient)
                if not isinstance(name, str):
                    raise ListError(Code.JSON_SYNTAX, "the text is not JSON: the name of a member must be text")
                self._expect(":")
                if name == "items" and self._peek() == "[":
                    self._expect("[")
                    self.listed = True
                    for _ in self._each("]"):
                        place = self.here()
                        yield place, self._next(self._scan)
                else:
                    value = self._next(scan_lenient)
                    size += len(name) + self._length
                    self.members[name] = value
                    if size > MAX_ITEM_BYTES:
                        self.too_large = True
                        self.members.clear()
            if self._peek():
                raise ListError(Code.JSON_SYNTAX, "the text continues after the end of the list")
        except UnicodeDecodeError as error:
            message = f"byte 0x{error.object[error.start]:02X} is not UTF-8: save the file as UTF-8"
            raise ListError(Code.NOT_UTF_8, message) from None

    def here(self) -> Location:
        """Return the place of the next value, or of the blanks before it."""
        lines = self._text.count("\n", self._mark, self._at)
        if lines:
            self._line += lines
            self._column, self._mark = 1, self._text.rindex("\n", self._mark, self._at) + 1
        self._column += self._at - self._mark
        self._mark = self._at
        return Location(self._name, self._line, self._column)

    def _each(self, end: str) -> Iterator[None]:
        """Yield at each part of an object or a list, up to its end."""
        if self._peek() != end:
            yield
            while self._peek() != end:
                self._expect(",")
                self._peek()
                yield
        self._expect(end)

    def _peek(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _expect(self, character: str) -> None:
        next_character = self._peek()
        if next_character != character:
            instead = f"not '{next_character}'" if next_character else "but the text ends: is the file cut?"
            raise ListError(Code.JSON_SYNTAX, f"expected '{character}', {instead}")
        self._at += 1

    def _next(self, scan: Scan[Read]) -> Read:
        """Read a value. While it may be cut at the end of the text, read more, up to the size of the largest value."""
        self._peek()
        while True:
            try:
                value, end = scan(self._text, self._at, self._column)
                if end < len(self._text) or self._ended:
                    self._length, self._at = end - self._at, end
                    return value
            except RecursionError:
                raise TooDeepError from None
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos + TOKEN_CHARACTERS > len(self._text)
                if self._ended or not cut:
                    self._at = error.pos
                    message = "the text is not JSON, or it is cut" if cut else "the text is not JSON"
                    raise ListError(Code.JSON_SYNTAX, message) from None
            except ValueError:  # of int(): sys.get_int_max_str_digits
                raise ListError(Code.JSON_SYNTAX, "a number has too many digits") from None
            if len(self._text) - self._at > MAX_ITEM_BYTES:
                raise ListError(Code.FILE_TOO_LARGE, too_large("an object of the list"))
            self._more()

    def _more(self) -> bool:
        """Read more text; return False at the end."""
        if self._ended:
            return False
        chunk = self._file.read(min(CHUNK_BYTES, self._left + 1))
        if len(chunk) > self._left:
            raise ListError(Code.FILE_TOO_LARGE, f"the file is larger than {self._limit // 2**20} MiB")
        self._left -= len(chunk)
        self._feed(chunk)
        return True

    def _feed(self, chunk: bytes) -> None:
        """Drop the text already parsed, and append a chunk."""
        self.here()
        self._text, self._at, self._mark = self._text[self._at :], 0, 0
        self._ended = not chunk
        self._text += self._decode.decode(chunk, self._ended)


def too_large(what: str) -> str:
    """Return the message about a value that exceeds MAX_ITEM_BYTES."""
    return f"{what} is larger than {MAX_ITEM_BYTES // 2**20} MiB"
