"""Excerpts of an author's text in messages."""

MAX_EXCERPT = 60
"""Characters of a value or an expression that a message quotes: enough to recognize it, and to fit on one line."""

MAX_REMEDY = 100
"""Characters of YAML that a message tells the author to write: nobody copies more from a message."""


def truncate(text: str, limit: int = MAX_EXCERPT) -> str:
    """Shorten a text that a message quotes."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def escape_controls(text: str) -> str:
    """Escape control characters in text from pods and files: a terminal or a CI log would interpret them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
