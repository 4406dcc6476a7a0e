"""`make pictures`: the pictures of the playground in the documents; needs chromium."""

from pathlib import Path
from typing import Any

from tools.browser import chromium, open_page, wait_for_answer, write_editor
from tools.documents import REPOSITORY
from tools.playground_server import running_playground

PICTURES = REPOSITORY / "docs" / "pictures"

_WINDOW: Any = {"width": 1200, "height": 1400}

_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml-vision}
spec:
  parallelism: 9
  completions: 9
  template:
    metadata: {labels: {team: training}}
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: pytorch, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}
"""


def take_pictures(folder: Path) -> None:
    """Take the pictures in light and dark colours."""
    with running_playground() as url, chromium() as browser:
        colours: Any
        for colours in ("light", "dark"):
            context = browser.new_context(viewport=_WINDOW, color_scheme=colours)
            page = context.new_page()
            open_page(page, url)
            write_editor(page, "pod", _JOB)
            page.get_by_text("cannot run it, since").wait_for()
            wait_for_answer(page)
            page.get_by_role("button", name="rungs[1].when").click()
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=folder / f"playground-{colours}.png")
            context.close()


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    take_pictures(PICTURES)
