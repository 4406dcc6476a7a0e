"""The packaged sets of cards, in rules/. `python -m tools.card_sets` writes them from the catalogue of accelerators."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rules_engine.accelerators.catalogue import Card
from rules_engine.accelerators.mig import device_resource, profile_order
from rules_engine.accelerators.resources import WHOLE_GPU, short_name
from rules_engine.rules.sources.card_files import card_sets, partition_ladders, set_files, set_templates
from tools.documents import REPOSITORY

RULES = REPOSITORY / "rules"
LEAST = "gpurules.io/least-gpu-memory-gb"

HEAD = """\
# yaml-language-server: $schema=../../schemas/RuleTest.json
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {{name: {name}}}
spec:
  description: {description}
  cluster:
    nodes:
"""
CASE = """\
    - name: {name}
{pod}
      expect:
        containers: {{main: {{{to}: {count}}}}}
        annotations: {{gpurules.io/fallback: {fallback}}}
        warnings: {warnings}
        decidedBy: [{{rule: FallbackLadder/{ladder}, rung: {to}}}{others}]
"""
LARGER = "The larger a device, the more of them a node offers, so that each rung is the next one for some count."


def all_files(name: str, card: Card) -> Mapping[str, str]:
    """Return all files of a card's set, with its RuleTests."""
    tests = _partition_tests(name, card) if card.partitions else [_test_up(name, card), _test_down(name, card)]
    return {**set_files(name, card), f"{name}.test.yaml": "---\n".join(tests)}


def _case(
    name: str,
    requested: str,
    count: int,
    to: str,
    ladder: str,
    *,
    least: str = "",
    warnings: str = "[]",
    others: str = "",
) -> str:
    spec = f"{{containers: [{{name: main, resources: {{limits: {{{requested}: {count}}}}}}}]}}"
    pod = f"      pod: {{spec: {spec}}}"
    if least:
        annotations = f'        metadata: {{annotations: {{{LEAST}: "{least}"}}}}'
        pod = f"      pod:\n{annotations}\n        spec: {spec}"
    fallback = "null" if to == requested else f"{short_name(requested)}->{short_name(to)}"
    return CASE.format(
        name=name, pod=pod, to=to, count=count, fallback=fallback, warnings=warnings, ladder=ladder, others=others
    )


def _node(resource: str, count: int) -> str:
    name = short_name(resource).rpartition("/")[2].replace("-", "-no-").replace(".", "-").replace("_", "-")
    return f"      - {{name: n-{name}, allocatable: {{{resource}: {count}}}}}\n"


def _test_up(name: str, card: Card) -> str:
    ordered = sorted(card.profiles, key=profile_order)
    plain = [device_resource(each) for each in ordered if each.endswith("gb")]
    whole, rest = len(plain) + 1, list[str]()
    nodes = [f"      - {{name: whole, allocatable: {{{WHOLE_GPU}: {whole + 1}}}}}\n"]
    nodes += [_node(each, number) for number, each in enumerate(plain, 1)]
    cases = [_case("a device that is offered stays", plain[0], 1, plain[0], name)]
    for number, (smaller, larger) in enumerate(pairwise(plain), 2):
        title = f"{number} of {short_name(smaller)}, more than a node has, become {short_name(larger)}"
        cases.append(_case(title, smaller, number, larger, name))
    cases += [
        _case(f"{whole} of {short_name(plain[-1])} become whole cards", plain[-1], whole, WHOLE_GPU, name),
        _case(f"{whole} of the smallest device become whole cards", plain[0], whole, WHOLE_GPU, name),
        _case("a pod that requests whole cards keeps them", WHOLE_GPU, 2, WHOLE_GPU, name),
    ]
    for extension, (kind, suffix, words) in set_templates()["extensions"].items():
        devices = [device_resource(each) for each in ordered if each.endswith(f"gb{extension}")]
        if devices:
            nodes += [_node(each, number) for number, each in [*enumerate(devices, 1)][::-1]]
            top = plain[-1] if kind == "media" else WHOLE_GPU
            rest += _extension_cases(f"{name}-{suffix}", devices, words, top, whole)
    least = str(profile_order(short_name(plain[0]))[1])
    title = f"a pod that needs {least} GB goes up like others if nothing lower is offered"
    up = _case(title, plain[0], 2, [*plain, WHOLE_GPU][1], f"{name}-less-memory", least=least)
    return "".join((HEAD.format(name=name, description=LARGER), *nodes, "  cases:\n", *cases, *rest, up))


def _extension_cases(ladder: str, devices: Sequence[str], words: str, top: str, whole: int) -> Iterator[str]:
    yield _case(f"a device {words} stays where it is offered", devices[0], 1, devices[0], ladder)
    for number, (smaller, larger) in enumerate(zip(devices, (*devices[1:], top), strict=True), 2):
        has = words.removeprefix("with ")
        name, which = short_name(larger), f", which has {has} too" if has != words else ""
        if larger not in devices:
            which = f", not a device without {has.removeprefix('all ')}"
        if larger == WHOLE_GPU:
            name, which = "whole cards", ""
        yield _case(f"{number} of {short_name(smaller)} become {name}{which}", smaller, number, larger, ladder)
    if top != WHOLE_GPU:
        yield _case(f"{whole} of {short_name(devices[0])} become whole cards", devices[0], whole, WHOLE_GPU, ladder)
    else:
        title = f"{whole + 2} of {short_name(devices[0])}, more than any node has, become whole cards"
        yield _case(title, devices[0], whole + 2, WHOLE_GPU, ladder)


def _test_down(name: str, card: Card) -> str:
    plain = sorted((each for each in card.profiles if each.endswith("gb")), key=profile_order, reverse=True)
    sizes = [profile_order(each)[1] for each in plain]
    devices = [*map(device_resource, plain)]
    ladder, last = f"{name}-less-memory", str(sizes[-1])
    nodes = [_node(each, number) for number, each in enumerate(devices, 1)]
    cases = [_case("a device that is offered stays", devices[0], 1, devices[0], ladder, least=last)]
    for number in range(1, len(plain)):
        larger, size, count = plain[number - 1], sizes[number], number + 1
        title = f"{count} of {larger} become {plain[number]} if the pod needs {size} GB"
        cases.append(_case(title, devices[number - 1], count, devices[number], ladder, least=str(size)))
        same = size == sizes[number - 1]
        needed, more = (size + 1, f", more than {plain[number]} has") if same else (sizes[number - 1], "")
        title = f"they become whole cards if it needs {needed} GB{more}"
        cases.append(_case(title, devices[number - 1], count, WHOLE_GPU, ladder, least=str(needed)))
    cases += [
        _case("whole cards stay", WHOLE_GPU, 2, WHOLE_GPU, ladder, least=last),
        _case("a pod that does not say how much it needs never gets less memory", devices[1], 3, WHOLE_GPU, name),
        _case(
            "a value that is not a number is ignored, with a warning", devices[1], 3, WHOLE_GPU, name,
            least=f"{last}GB", warnings=f"[{LEAST} is ignored]", others=f", {{rule: Validation/{name}-least-memory}}",
        ),
    ]  # fmt: skip
    head = HEAD.format(name=ladder, description="The smaller a device, the more of them a node offers.")
    return "".join((head, *nodes, "  cases:\n", *cases))


def _partition_tests(name: str, card: Card) -> Iterator[str]:
    for mode, whole, rungs in partition_ladders(card):
        ladder, devices = f"{name}-{mode}", [each for each in rungs[::-1] if each != whole]
        nodes = [_node(each, number) for number, each in enumerate((*devices, whole), 1)]
        own = (*devices, whole) if rungs[0] == whole else devices[:-1]
        cases = [_case(f"{short_name(each)} that is offered stays", each, 1, each, ladder) for each in own]
        for number, larger in enumerate((*devices[1:], whole), 2):
            title = f"{number} of {devices[0]}, more than smaller ones have, become {larger}"
            cases.append(_case(title, devices[0], number, larger, ladder))
        most = len(devices) + 2
        title = f"{most} of {devices[0]}, more than any node has, become {whole}"
        cases.append(_case(title, devices[0], most, whole, ladder))
        yield "".join((HEAD.format(name=ladder, description=LARGER), *nodes, "  cases:\n", *cases))


def main() -> None:
    for name, card in card_sets().items():
        (RULES / name).mkdir(exist_ok=True)
        for file, text in all_files(name, card).items():
            (RULES / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
