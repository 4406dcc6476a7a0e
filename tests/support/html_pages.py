"""Pages as tests read them."""

from collections import Counter
from html.parser import HTMLParser

from rules_engine.report.html import render_html
from rules_engine.report.values import Report

VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """The elements of a page, and its text without style and markup."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data.split()

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def having(self, css_class: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if css_class in (attributes.get("class") or "").split()]


def page_of(report: Report) -> Page:
    """Return the page of a report, whose elements are all closed."""
    found = Page(render_html(report))
    assert found.open == []
    return found


def missing_words(text: str, page: Page) -> Counter[str]:
    """Return the words of a report's text that its page does not have as often, but for signs of drawings."""
    words = [word.rstrip(":").casefold() for word in text.split() if not set(word) & set("░█▁▂▃▄▅▆▇▏▕")]
    return Counter(words) - Counter(word.rstrip(":").casefold() for word in page.text.split())
