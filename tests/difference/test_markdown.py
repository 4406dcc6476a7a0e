"""Answers of diffs as Markdown, as a renderer of it reads them."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from rules_engine.difference.answer import Answer
from rules_engine.difference.output.markdown import MAX_BYTES, MAX_PARTS, MAX_ROWS, UNFOLDED, markdown
from rules_engine.difference.values import Outcome
from tests.support.differences import IN_FORCE, RECORDED, WHOLE, Pods, answer, denied, injected, kept, submitted
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


def page(found: Answer) -> Page:
    text = markdown(found)
    assert len(text.encode()) <= MAX_BYTES
    shown = Page(RENDERER.render(text))
    assert shown.open == []
    return shown


def rows(found: Page) -> list[list[str]]:
    """Return the elements within each row of the first table's body."""
    tags = [tag for tag, _ in found.elements]
    end = tags.index("table", tags.index("table") + 1) if tags.count("table") > 1 else len(tags)
    starts = [index for index, tag in enumerate(tags[:end]) if tag == "tr"]
    return [tags[start:stop] for start, stop in zip(starts[1:], [*starts[2:], end], strict=True)]


def pods(number: int, *, different: bool = False) -> list[Pods]:
    return [(submitted(f"job-{n:05}"), kept(), denied(f"no {n}" if different else "no")) for n in range(number)]


WHOLE_START = """\
### gpu-rules diff: 14 of 319 pods changed, 4 not known

`git:main:rules` → `rules`

- GPUs of admitted pods: +8 nvidia.com/gpu, −8 nvidia.com/mig-3g.40gb
- 1 live pod decided as it is now

| workload | pods | change |
| --- | --: | --- |
| `ml/Job/greedy` | 1 | **Denied**<br>`admission`: `allowed` → `denied (Validation/limit: at most 8 GPUs)`<br>\
`Validation/limit`: `no effect` → `rules/limit.yaml:14` |
"""

WHOLE_MORE = """\
| `ml/Deployment/web` | 6 | **Rung**<br>\
`given for nvidia.com/mig-2g.20gb`: `nvidia.com/mig-3g.40gb` → `nvidia.com/gpu`<br>\
`main nvidia.com/mig-3g.40gb`: `1` → `none`<br>`main nvidia.com/gpu`: `none` → `1`<br>\
`annotation gpu-webhook.k8s.io/fallback`: `"2g.20gb->3g.40gb"` → `"2g.20gb->gpu"`<br>\
`FallbackLadder/mig-80gb`: `rules/mig.yaml:12` → `rules/mig.yaml:13` |
| `ml/Job/train` | 2 | as above |
| `ml/Job/more` | 3 | **Resources, Warnings**<br>`main memory`: `8Gi` → `16Gi`<br>\
`warnings`: `none` → `memory was doubled`<br>`ResourceInjection/memory`: `rules/memory.yaml:9` |
"""

WHOLE_END = """\
**GPUs of admitted pods**

| resource | requested |
| --- | --: |
| `nvidia.com/gpu` | 320 → 328 (+8) |
| `nvidia.com/mig-3g.40gb` | 8 → 0 (−8) |

</details>
"""


def test_an_answer_with_every_kind_of_change() -> None:
    text = markdown(answer())

    assert text.startswith(WHOLE_START)
    assert WHOLE_MORE in text
    assert "\n<details>\n<summary>Totals</summary>\n\n**Changed pods by kind of change**\n\n| kind | pods |\n" in text
    assert text.endswith(WHOLE_END)


def test_the_text_is_rendered_as_tables() -> None:
    found = page(answer(recorded=RECORDED))

    assert [tag for tag, _ in found.elements].count("table") == 7
    assert "ml/Job/train 2 as above ml/Job/more 3 Resources, Warnings main memory : 8Gi → 16Gi" in found.text
    assert "1,000 recorded admissions in 1,010 lines: 980 decided again" in found.text
    assert "9 not replayable: its view was not found" in found.text


def test_an_answer_without_pods() -> None:
    assert markdown(answer([])) == "### gpu-rules diff: no pods\n\n`git:main:rules` → `rules`\n"


def test_an_answer_without_changes_has_no_table_of_workloads() -> None:
    assert "workload" not in markdown(answer(WHOLE[-1:], same_rules=True))


def test_clusters_have_columns() -> None:
    both = [(submitted("a", cluster=name), kept(), denied()) for name in ("east", "we|st")]
    text = markdown(answer(both, clusters=("east", "we|st")))

    assert text.startswith("### gpu-rules diff: changes (east, we&#124;st)\n")
    assert "- east: 1 of 1 pod changed\n" in text
    assert markdown(answer([], clusters=("east", "west"))).startswith("### gpu-rules diff: no changes\n")
    assert "- we&#124;st: 1 of 1 pod changed\n" in text
    assert (
        "| workload | east | we&#124;st | change |\n| --- | --: | --: | --- |\n| `ml/Job/a` | 1 | 1 | **Denied**"
        in text
    )


@pytest.mark.parametrize("number", [UNFOLDED, UNFOLDED + 1, 3 * UNFOLDED])
def test_workloads_beyond_50_are_folded(number: int) -> None:
    text = markdown(answer(pods(number)))
    shown, *folded = text.split("<details>")[:-1]

    assert UNFOLDED == 50
    assert shown.count("`ml/Job/job-") == 50
    assert shown.count("as above") == 49
    assert ("more</summary>" in text) == bool(folded)
    for part in folded:
        assert part.startswith(f"\n<summary>{number - 50} more</summary>\n\n| workload | pods | change |\n")
        assert part.count("`ml/Job/job-") == number - 50
        assert part.count("as above") == number - 51
        assert part.count("**Denied**") == 1
        assert part.rstrip().endswith("</details>")
    page(answer(pods(number)))


def test_a_change_of_many_workloads_is_bounded() -> None:
    found = answer(pods(4_000), recorded=RECORDED)
    text = markdown(found)
    more = re.search(r"\n\| `and ([0-9,]+) more workloads` \| ([0-9,]+) \| as above \|\n\n</details>\n", text)

    assert len(text.encode()) <= MAX_BYTES
    assert more is not None
    assert more[1] == more[2]
    assert text.count("`ml/Job/job-") > 800
    assert int(more[1].replace(",", "")) + text.count("`ml/Job/job-") == 4_000
    assert "Totals Changed pods by kind of change kind pods Denied 4,000" in page(found).text


def test_a_large_change_does_not_hide_others() -> None:
    small = [(submitted(f"small-{n:03}"), kept(), denied(f"no {n}")) for n in range(100)]
    text = markdown(answer([*pods(4_000), *small]))

    assert text.count("ml/Job/small-") == 100
    assert text.count("`ml/Job/job-") > 200


def test_many_changes_are_bounded() -> None:
    found = answer(pods(4_000, different=True), recorded=RECORDED)
    text = markdown(found)
    more = re.search(r"\n\nand ([0-9,]+) more changes \(`--output json` has all\)\n\n</details>\n", text)
    fold = re.search(r"<summary>([0-9,]+) more</summary>", text)

    assert MAX_BYTES - 1_000 < len(text.encode()) <= MAX_BYTES
    assert more is not None
    assert fold is not None
    assert int(more[1].replace(",", "")) + text.count("`ml/Job/job-") == 4_000
    assert int(fold[1].replace(",", "")) + UNFOLDED == text.count("`ml/Job/job-")
    assert text.endswith("</details>\n")
    assert "Totals Changed pods by kind of change kind pods Denied 4,000" in page(found).text


def test_long_changes_texts_and_totals_are_cut() -> None:
    annotations = tuple((f"key-{n:03}", "x" * 10_000) for n in range(500))
    found = [(submitted("a", namespace=f"{'n' * 63}-{n}"), kept(), kept(annotations=annotations)) for n in range(90)]

    text = markdown(answer(found))

    assert f"<br>and {500 - MAX_PARTS} more differences (`--output json` has all) |\n" in text
    assert f"and {90 - MAX_ROWS} more rows (`--output json` has all)\n" in text
    page(answer(found))


def test_many_clusters_and_reasons_are_cut() -> None:
    names = [f"{'cluster-' * 20}{n}" for n in range(400)]
    found = answer([(submitted("a", cluster=name), kept(), denied()) for name in names], clusters=names)

    text = markdown(found)

    assert len(text.encode()) <= MAX_BYTES
    assert "more lines (`--output json` has all)\n" in text
    assert "and 1 more change (`--output json` has all)\n" in text
    page(found)


def test_a_change_of_any_size_is_counted() -> None:
    wide = "\U0001f600|" * 5_000
    outcomes = [Outcome(annotations=tuple((f"{n}-{m}-{wide}", wide) for m in range(20))) for n in range(300)]

    page(answer([(submitted(wide, namespace=wide), kept(), each) for each in outcomes], old=wide, new=wide))


def evil_answer(evil: str) -> Answer:
    made: Sequence[Pods] = [
        (
            submitted(evil, kind=evil, namespace=evil, cluster=evil),
            injected("1Gi", 9),
            injected("1Gi", 9, warnings=(evil,)),
        ),
        (submitted("a", cluster=evil), kept(), denied(evil)),
        (submitted("b", cluster=evil), Outcome(unknown=evil or "-"), kept()),
        (submitted("c", cluster=evil), kept(), Outcome(annotations=((evil, evil),), gpus=((f"gpu/{evil}", 1),))),
    ]
    return answer(made, clusters=(evil, "other"), old=evil, new=evil, in_force=replace(IN_FORCE, url=evil))


@pytest.mark.parametrize("evil", EVIL)
def test_texts_are_no_markup(evil: str) -> None:
    found = evil_answer(evil)
    shown = page(found)

    allowed = {"h3", "p", "ul", "li", "code", "table", "thead", "tbody", "tr", "th", "td", "strong", "br", "details"}
    assert {tag for tag, _ in shown.elements} <= {*allowed, "summary"}
    assert len(rows(shown)) == 4
    for row in rows(shown):
        assert row.count("td") == 4
    assert [tag for tag, _ in shown.elements].count("details") == 1


@pytest.mark.parametrize("evil", EVIL)
def test_texts_are_shown_as_they_are(evil: str) -> None:
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
