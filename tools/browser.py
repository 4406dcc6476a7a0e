"""Debian's chromium, driven by playwright, for pictures of the playground's page and for its tests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium")
"""None if it is not installed: playwright's own download needs a host that CI does not reach."""

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""No request but those of pages; root needs --no-sandbox."""


_PASTE = """(element, text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  element.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""

TIMEOUT_MS = 60_000
"""Timeout of each wait for a page."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*_QUIET])
        try:
            yield browser
        finally:
            browser.close()


def write_editor(page: Page, name: str, text: str) -> None:
    """Replace the text of an editor by pasting."""
    editor = page.locator(f"#{name} .cm-content")
    editor.click()
    page.keyboard.press("Control+a")
    editor.evaluate(_PASTE, text)


def wait_for_answer(page: Page) -> None:
    page.locator("#results[aria-busy=false]").wait_for()


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    wait_for_answer(page)
