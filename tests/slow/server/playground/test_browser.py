"""The playground in a real browser: chromium, if it is installed."""

import base64
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import compressobj

import pytest
from click.testing import CliRunner

from rules_engine.server.commands import main
from rules_engine.server.commands.playground.answer import EXAMPLES
from tests.support.playground_server import Playground, running_playground
from tools import codemirror
from tools.browser import CHROMIUM, TIMEOUT_MS, chromium, open_page, wait_for_answer, write_editor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

RULES, POD = EXAMPLES[0]["texts"]["rules.yaml"], EXAMPLES[0]["texts"]["pod.yaml"]

GRANT = {"permissions": ["clipboard-read", "clipboard-write"]}

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with running_playground() as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def new_page(browser: Any, playground: Playground) -> Iterator[Any]:
    """A function that opens pages in fresh profiles, which must log no error and request nothing from elsewhere."""
    wrong: list[str] = []
    contexts = []

    def open_in_profile(fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda request: wrong.append(request.url) if not is_own(request.url) else None)
        open_page(page, f"{playground.url}{fragment}")
        return page

    def is_own(url: str) -> bool:
        return url.startswith((playground.url, f"blob:{playground.url}"))

    yield open_in_profile
    for context in contexts:
        context.close()
    assert wrong == []


def texts_of(page: Any) -> Mapping[str, str]:
    """Return what the page would send."""
    with page.expect_request("**/answer") as request:
        page.locator("#pod .cm-content").click()
        page.keyboard.press("Control+End")
        page.keyboard.type(" ")
    wait_for_answer(page)
    sent: Mapping[str, str] = request.value.post_data_json
    return sent


def change_rules(page: Any, text: str) -> None:
    with page.expect_response("**/answer"):
        write_editor(page, "rules", text)
    wait_for_answer(page)


def test_a_mistake_is_underlined_and_mending_it_changes_the_decision(new_page: Any) -> None:
    page = new_page()
    assert "nvidia.com/gpu: assumed" in page.inner_text("#decision")

    change_rules(page, RULES.replace("object", "objct").replace("training", "other"))

    assert page.inner_text("#rules .cm-lintRange-error") == "objct"
    assert "undeclared reference to 'objct' (did you mean 'object'?)" in page.inner_text("#problems")
    assert "Correct the name" in page.inner_text("#problems")
    assert page.inner_text("#decision") == "unknown: correct the errors first"

    change_rules(page, RULES.replace("training", "other"))

    assert page.locator(".cm-lintRange-error").count() == 0
    assert "nvidia.com/mig-1g.10gb: no node offers 1" in page.inner_text("#decision")
    assert "its condition is false" not in page.inner_text("#decision")


def test_a_link_opens_the_same_texts_and_decision_in_a_fresh_profile(new_page: Any) -> None:
    page = new_page(**GRANT)
    change_rules(page, f"# größer 🎛\n{RULES}")
    page.click("#share")
    page.get_by_text("The link is copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    assert page.inner_text("#message") == "The link is copied, and in the address bar."

    other = new_page(link[link.index("#") :])

    assert other.inner_text("#results") == page.inner_text("#results")
    assert texts_of(other) == texts_of(page)
    assert (page.url, page.inner_text("#message")) == (link[: link.index("#")], "")


def test_an_example_replaces_the_texts(new_page: Any) -> None:
    page = new_page()
    for index, example in enumerate(EXAMPLES):
        with page.expect_request("**/answer") as request:
            page.select_option("#example", str(index))
        assert request.value.post_data_json.items() >= example["texts"].items()
        wait_for_answer(page)
        assert page.locator("#problems .bad").count() == 0
        assert page.locator("#decision .tree").count() >= 1
        assert page.locator("#start .item").count() >= 1


def test_a_place_of_the_trace_shows_the_line_of_the_rule(new_page: Any) -> None:
    page = new_page()

    page.get_by_role("button", name="rules.yaml:9:13 rungs[1].when").click()

    assert page.evaluate("document.activeElement.closest('#rules') !== null")
    assert page.inner_text("#rules .cm-activeLineGutter") == "9"
    assert page.evaluate("getSelection().toString()").startswith("object.metadata")


def test_too_much_for_a_link_is_said_and_a_damaged_one_is_refused(new_page: Any) -> None:
    page = new_page()
    noise = "".join(f"# {number * 7919 % 1000003:x} {number * 104729 % 1299709:x}\n" for number in range(9_000))
    change_rules(page, noise)
    page.click("#share")
    page.get_by_text("too much for a link").wait_for()
    assert "#" not in page.url

    bomb = compressobj(9, wbits=-15)
    packed = bomb.compress(b"[" * 50_000_000) + bomb.flush()
    for fragment in ("#x", "#" + base64.urlsafe_b64encode(packed).decode().rstrip("=")):
        assert "The link is damaged" in new_page(fragment).inner_text("#message")


def test_saved_files_pass_their_test(new_page: Any, tmp_path: Path) -> None:
    page = new_page()
    with page.expect_download() as download:
        page.click("#save")
    with zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes())) as archive:
        archive.extractall(tmp_path)

    assert CliRunner().invoke(main, ["test", str(tmp_path)]).exit_code == 0
    page.get_by_text("Saved").wait_for()


def test_markup_in_texts_is_text(new_page: Any) -> None:
    page = new_page()
    rule = {
        "apiVersion": "gpurules.io/v1",
        "kind": "Validation",
        "metadata": {"name": "v"},
        "spec": {"validations": [{"expression": "false", "message": HOSTILE}]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {HOSTILE: HOSTILE}},
        "spec": {"containers": [{"name": HOSTILE, "image": HOSTILE}], "nodeSelector": {HOSTILE: HOSTILE}},
    }
    write_editor(page, "pod", json.dumps(pod))
    change_rules(page, json.dumps(rule))

    assert HOSTILE in page.inner_text("#decision")
    assert page.locator("img, #results script").count() == 0


def test_ten_megabytes_are_not_sent(new_page: Any) -> None:
    page = new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    write_editor(page, "pod", "x: y\n" * 2_000_000)

    page.get_by_text("at most 256 KiB are evaluated").wait_for()
    assert requests == []


@pytest.mark.parametrize("width", [360, 640, 1280, 2560])
def test_a_page_is_never_wider_than_its_window(width: int, new_page: Any) -> None:
    # 640 pixels are 1,280 at a zoom of 200 %.
    page = new_page(viewport={"width": width, "height": 800})
    write_editor(page, "pod", POD.replace("mig-3g.40gb: 1", "gpu: 99"))
    page.get_by_text("cannot run it, since").wait_for()

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_is_reached_by_the_keyboard(new_page: Any) -> None:
    page = new_page()
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(document.activeElement.closest('#rules, #pod, #cluster') ?? document.activeElement).id"
                " || document.activeElement.textContent"
            )
        )

    assert reached[:6] == ["example", "share", "save", "rules", "pod", "cluster"]
    assert "rules.yaml:10:18 rungs[2]" in reached
    page.get_by_role("button", name="rules.yaml:10:18").focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#rules .cm-activeLineGutter") == "10"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("npm")
    codemirror.install(folder)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.skipif(not codemirror.NPM, reason="npm is not installed")
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_to_object_to(width: int, colours: str, axe: str, new_page: Any) -> None:
    page = new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
    write_editor(page, "pod", POD.replace("mig-3g.40gb: 1", "gpu: 99"))
    page.get_by_text("cannot run it, since").wait_for()
    states = [None, RULES.replace("object", "objct")]
    for rules in states:
        if rules is not None:
            change_rules(page, rules)
        page.evaluate(axe)
        found = page.evaluate("axe.run()")
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == []
