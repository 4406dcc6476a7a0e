"""Answers of diffs as one HTML page."""

import re
from dataclasses import replace
from typing import Any

from rules_engine.difference.answer import Answer
from rules_engine.difference.output.html_page import MAX_PARTS, MAX_ROWS, MAX_TEXT, MAX_WORKLOADS, UNFOLDED, html_page
from rules_engine.difference.values import Outcome
from tests.support.differences import IN_FORCE, RECORDED, WHOLE, answer, denied, injected, kept, submitted
from tests.support.html_pages import Page


def page(found: Answer) -> Page:
    shown = Page(html_page(found))
    assert shown.open == []
    return shown


def many(number: int, *, different: bool = False) -> Answer:
    return answer([(submitted(f"w-{n:05}"), kept(), denied(f"no {n}" if different else "no")) for n in range(number)])


def test_the_page_needs_no_other_file_and_runs_nothing() -> None:
    found = page(answer(recorded=RECORDED, in_force=IN_FORCE, omitted=1))

    for tag, attributes in found.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "form", "a")
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in html_page(answer())
    policy = next(attributes for _, attributes in found.elements if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_colour_is_of_both_schemes() -> None:
    source = html_page(answer())
    light, dark = (set(re.findall(r"(--\w+):", block)) for block in re.findall(r":root \{(.*?)\}", source, re.DOTALL))

    assert light == dark
    assert set(re.findall(r"var\((--\w+)\)", source)) <= light


def test_a_page_has_what_the_text_has() -> None:
    text = page(answer(recorded=RECORDED, in_force=IN_FORCE, omitted=3, same_rules=True)).text

    for expected in (
        "Difference of rules git:main:rules → rules 14 of 319 pods changed, 4 not known GPUs of admitted pods: +8",
        "the rules in force at https://gpu-rules are those of --old both sides have the same rules 1 live pod ",
        "3 changed pods counted in the totals only",
        "Changed pods by kind of change kind pods Denied 1 Admitted 1 Rung 8 Resources 3",
        "Changed pods by namespace namespace pods ml 16 lab 2 Changed pods by rule rule pods FallbackLadder/mig-80gb 8",
        "Pods whose outcome is not known reason pods Validation/owner reads request.userInfo 4",
        "GPUs of admitted pods resource requested nvidia.com/gpu 320 → 328 (+8) nvidia.com/mig-3g.40gb 8 → 0 (−8)",
        "Recorded admissions 1,000 recorded admissions in 1,010 lines: 980 decided again 7 calls",
        "Changes Denied 1 pod of 1 workload admission allowed → denied (Validation/limit: at most 8 GPUs) Validation",
        "Validation/limit no effect → rules/limit.yaml:14 workload pods ml/Job/greedy 1",
        "Rung 8 pods of 2 workloads given for nvidia.com/mig-2g.20gb nvidia.com/mig-3g.40gb → nvidia.com/gpu",
        "ResourceInjection/memory rules/memory.yaml:9 workload pods ml/Job/more 3",
    ):
        assert expected in text


def test_changes_have_colours() -> None:
    found = page(answer())

    assert [each["class"] for each in found.having("item")] == [
        "item Error",
        "item Info",
        "item Info",
        "item Info",
        "item Info",
        "item Warning",
    ]


def test_an_answer_without_changes() -> None:
    assert page(answer([])).text.endswith("rules no pods")
    text = page(answer(WHOLE[-1:])).text
    assert text.endswith("none of 300 pods changed GPUs of admitted pods resource requested nvidia.com/gpu 300")


def test_each_cluster_has_a_column() -> None:
    both = [(submitted("a", cluster=name), kept(), denied()) for name in ("East", "West")]
    text = page(answer(both, clusters=("East", "West", "idle"))).text

    assert "Changed pods by kind of change kind East West idle Denied 1 1 " in text
    assert "workload East West idle ml/Job/a 1 1" in text


def test_rows_beyond_the_first_ones_are_folded() -> None:
    assert not [tag for tag, _ in page(many(UNFOLDED)).elements if tag == "details"]
    found = page(many(UNFOLDED + 1))
    assert [tag for tag, _ in found.elements].count("details") == 1
    assert f"ml/Job/w-{UNFOLDED - 1:05} 1 1 more workload pods ml/Job/w-{UNFOLDED:05} 1" in found.text


def test_a_large_answer_is_cut() -> None:
    source = html_page(many(4_000))
    assert len(source) < 500_000
    assert "and 3,000 more workloads" in source
    assert source.count("ml/Job/w-") == 1_000

    source = html_page(many(4_000, different=True))
    assert len(source) < 500_000
    assert source.count("<article") == MAX_ROWS
    assert f"and {4_000 - MAX_ROWS:,} more changes (--output json has all)" in source


def test_a_large_change_does_not_hide_others() -> None:
    pods = [(submitted(f"w-{n}"), kept(), denied()) for n in range(MAX_WORKLOADS)]
    other = [(submitted(f"o-{n}"), kept(), injected("1Gi", 9)) for n in range(7)]

    assert page(answer([*pods, *other])).text.count("ml/Job/o-") == 7


def test_long_texts_changes_and_totals_are_cut() -> None:
    annotations = tuple((f"key-{n:03}", "x" * 10_000) for n in range(500))
    pods = [(submitted("a", namespace=f"n-{n}"), kept(), kept(annotations=annotations)) for n in range(MAX_ROWS + 5)]
    text = page(answer(pods)).text

    assert f'not written → "{"x" * (MAX_TEXT - 1)}… ' in text
    assert f"and {500 - MAX_PARTS} more differences (--output json has all)" in text
    assert "and 5 more rows (--output json has all)" in text


def test_markup_and_control_characters_are_escaped() -> None:
    evil = '<script>alert("1")</script>\x1b\u202e'
    where: dict[str, Any] = {"namespace": evil, "kind": evil, "cluster": evil}
    pods = [
        (submitted(evil, **where), kept(), denied(evil)),
        (submitted(evil, **where), Outcome(unknown=evil), kept()),
        (submitted(evil, **where), kept(), Outcome(annotations=((evil, evil),), gpus=((f"gpu/{evil}", 1),))),
    ]
    source = html_page(answer(pods, clusters=(evil, "x"), old=evil, new=evil, in_force=replace(IN_FORCE, url=evil)))

    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert source.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;\\x1b\\u202e") > 20
