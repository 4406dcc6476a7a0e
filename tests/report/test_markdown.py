"""Markdown of diffs, as a renderer of it reads them."""

import re
from collections.abc import Sequence

import pytest
from markdown_it import MarkdownIt

from rules_engine.questions.diff.answer import DifferenceAnswer
from rules_engine.questions.diff.report import difference_report
from rules_engine.questions.diff.values import Outcome
from rules_engine.report import markdown as renderer
from rules_engine.report.markdown import MAX_BYTES, MAX_ROWS
from tests.support.differences import RECORDED, Pods, answer, denied, injected, kept, submitted, unknown
from tests.support.html_pages import Page

RENDERER = MarkdownIt("commonmark", {"html": True}).enable("table")

EVIL = (
    "| x |\n| y |",
    "`code` ``two`` ```",
    "`",
    "\\|\\`\\",
    "</code></td></details><script>alert(1)</script><!-- ",
    "**bold** _it_ ~~no~~ [click](http://example.com) ![i](//x) <b>",
    "@everyone #12 org/repo#3 http://example.com www.example.com a@example.com",
    "\x1b[31m\u202e\r\n# head\n\n- list\n",
    "&lt;script&gt; &#124; &amp;",
    " ",
    "",
    "```\n" * 3,
)


def markdown(found: DifferenceAnswer) -> str:
    return renderer.render_markdown(difference_report(found))


def page(found: DifferenceAnswer) -> Page:
    text = markdown(found)
    assert len(text.encode()) <= MAX_BYTES
    shown = Page(RENDERER.render(text))
    assert shown.open == []
    return shown


def pods(number: int, *, different: bool = False) -> list[Pods]:
    return [(submitted(f"job-{n:05}"), kept(), denied(f"no {n}" if different else "no")) for n in range(number)]


def test_an_answer_with_every_kind_of_change() -> None:
    text = markdown(answer(recorded=RECORDED))
    assert text.startswith("### gpu-rules: 14 of 319 pods changed, 4 not known\n\n`git:main:rules → rules`")
    assert "\n- GPUs of admitted pods: +8 nvidia.com/gpu, −8 nvidia.com/mig-3g.40gb\n" in text
    assert (
        "**Denied  1 pod of 1 workload**\n\n- admission: `allowed → denied (Validation/limit: at most 8 GPUs)`\n"
        "- Validation/limit: `no effect → rules/limit.yaml:14`\n\n"
        "| workload | pods |\n| --- | --: |\n| `Job ml/greedy` | 1 |\n"
    ) in text
    assert "\n<details>\n<summary>Totals</summary>\n\n**Changed pods by kind of change**\n\n| kind | pods |\n" in text
    rendered = page(answer(recorded=RECORDED))
    assert [tag for tag, _ in rendered.elements].count("table") == 12
    assert "9 not replayable: it was not recorded" in rendered.text


def test_an_answer_without_pods() -> None:
    assert markdown(answer([])) == "### gpu-rules: no pods\n\n`git:main:rules → rules`\n"


def test_clusters_have_columns() -> None:
    both = [(submitted("a", cluster=name), kept(), denied()) for name in ("east", "we|st")]
    text = markdown(answer(both, clusters=("east", "we|st")))
    assert text.startswith("### gpu-rules: east: 1 of 1 pod changed\n")
    assert "- we&#124;st: 1 of 1 pod changed\n" in text
    assert "| workload | east | we&#124;st |\n| --- | --: | --: |\n| `Job ml/a` | 1 | 1 |" in text


def test_a_large_change_does_not_hide_others() -> None:
    small = [(submitted(f"small-{n:03}"), kept(), denied(f"no {n}")) for n in range(100)]
    text = markdown(answer([*pods(4_000), *small], recorded=RECORDED))
    assert text.count("Job ml/small-") == 100
    assert "and 3,980 more workloads (`--output json` has all)" in text


def test_many_changes_are_bounded() -> None:
    large = answer(pods(4_000, different=True), recorded=RECORDED)
    text = markdown(large)
    more = re.search(r"\nand ([0-9,]+) more changes \(`--output json` has all\)\n", text)
    assert MAX_BYTES - 1_500 < len(text.encode()) <= MAX_BYTES
    assert more is not None
    assert int(more[1].replace(",", "")) + text.count("`Job ml/job-") == 4_000
    assert "Totals Changed pods by kind of change kind pods Denied 4,000" in page(large).text


def test_long_changes_texts_and_totals_are_cut() -> None:
    annotations = {f"key-{n:03}": "x" * 10_000 for n in range(500)}
    changes = [(submitted("a", namespace=f"{'n' * 63}-{n}"), kept(), kept(annotations=annotations)) for n in range(90)]

    text = markdown(answer(changes))

    assert f"- and {500 - MAX_ROWS} more lines (`--output json` has all)\n" in text
    assert f"and {90 - MAX_ROWS} more rows (`--output json` has all)\n" in text
    page(answer(changes))


def test_many_clusters_and_reasons_are_cut() -> None:
    names = [f"{'cluster-' * 20}{n}" for n in range(400)]
    report = answer([(submitted("a", cluster=name), kept(), denied()) for name in names], clusters=names)

    text = markdown(report)

    assert len(text.encode()) <= MAX_BYTES
    assert "more lines (`--output json` has all)\n" in text
    assert "and 1 more change (`--output json` has all)\n" in text
    page(report)


def test_a_change_of_any_size_is_counted() -> None:
    wide = "\U0001f600|" * 5_000
    outcomes = [Outcome(annotations={f"{n}-{m}-{wide}": wide for m in range(20)}) for n in range(300)]

    page(answer([(submitted(wide, namespace=wide), kept(), each) for each in outcomes], old=wide, new=wide))


def evil_answer(evil: str) -> DifferenceAnswer:
    made: Sequence[Pods] = [
        (
            submitted(evil, kind=evil, namespace=evil, cluster=evil),
            injected("1Gi", 9),
            injected("1Gi", 9, warnings=(evil,)),
        ),
        (submitted("a", cluster=evil), kept(), denied(evil)),
        (submitted("b", cluster=evil), unknown(evil or "-"), kept()),
        (submitted("c", cluster=evil), kept(), Outcome(annotations={evil: evil}, gpus={f"gpu/{evil}": 1})),
    ]
    return answer(made, clusters=(evil, "other"), old=evil, new=evil)


@pytest.mark.parametrize("evil", EVIL)
def test_markup_in_texts_is_escaped(evil: str) -> None:
    report = evil_answer(evil)
    shown = page(report)

    allowed = {"h3", "p", "ul", "li", "code", "table", "thead", "tbody", "tr", "th", "td", "strong", "br", "details"}
    assert {tag for tag, _ in shown.elements} <= {*allowed, "summary"}
    assert [tag for tag, _ in shown.elements].count("table") == 9
    assert [tag for tag, _ in shown.elements].count("details") == 1


@pytest.mark.parametrize("evil", EVIL)
def test_texts_are_shown_unchanged(evil: str) -> None:
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in evil)

    assert " ".join(f"denied (Validation/limit: {escaped})".split()) in page(evil_answer(evil)).text


@pytest.mark.parametrize("evil", EVIL)
def test_no_text_outside_of_code_is_a_mention_or_a_link(evil: str) -> None:
    """GitHub makes links of the rendered page's text, but not within code."""
    rendered = RENDERER.render(markdown(evil_answer(evil)))
    outside = re.sub(r"<code>.*?</code>", "", rendered)

    assert not re.search(r"[@#]\w", outside)
    # Its Markdown makes links of URLs in the source.
    source = re.sub(r"<code>.*?</code>|`[^`|\\\n]+`", "", markdown(evil_answer(evil)))
    assert "://" not in source
    assert "www." not in source
