"""Files of the sets of cards: ladders of the devices of each card in the catalogue."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from rules_engine.accelerators.catalogue import NONE, Card, catalogue
from rules_engine.accelerators.mig import device_resource, profile_order
from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.patch import EMPTY


def set_templates() -> Any:
    """Return the templates of files, and the extensions of profiles that have a ladder of their own."""
    return read_data(Path(__file__).with_name("card_sets.yaml"))


def card_sets() -> Mapping[str, Card]:
    """Return the cards that have a set, by the name of the set, which begins with `mig` or the partitions' domain."""
    cards = {each.products: each for each in reversed(catalogue().cards)}.values()  # the first of a product
    kinds = ((next(iter(each.partitions), "mig").partition(".")[0], each) for each in reversed(cards))
    return {
        f"{kind}-{card.name}".lower().replace(" ", "-"): card
        for kind, card in kinds
        if card.products != NONE and (card.partitions or any(name.endswith("gb") for name in card.profiles))
    }


def set_files(name: str, card: Card) -> Mapping[str, str]:
    """Return the files of a card's set: its ladders, and the Validation of the annotation that they read."""
    templates = set_templates()
    values = {"name": name, "title": card.title or card.name}

    def fill(template: str, **others: str) -> str:
        return Template(templates[template]).substitute(values, **others)

    if card.partitions:
        ladders = [
            fill("partitions", suffix=mode, whole=whole, rungs=_rungs(rungs, assumed=whole))
            for mode, whole, rungs in partition_ladders(card)
        ]
        return {"ladders.yaml": "---\n".join(ladders)}
    ordered = sorted(card.profiles, key=profile_order, reverse=True)
    plain = [each for each in ordered if each.endswith("gb")]
    largest = device_resource(plain[0])
    rungs = _rungs(map(device_resource, plain), card.aliases)
    ladders = [fill("plain", rungs=rungs, gigabytes=str(profile_order(plain[0])[1]))]
    for extension, (template, suffix, words) in templates["extensions"].items():
        devices = [device_resource(each) for each in ordered if each.endswith(f"gb{extension}")]
        if devices:
            ladders.append(fill(template, suffix=suffix, words=words, largest=largest, rungs=_rungs(devices)))
    ladders.append(fill("less", largest=largest, rungs="\n".join(_smaller_rungs(plain))))
    resources = ", ".join(map(device_resource, plain))
    return {"ladders.yaml": "---\n".join(ladders), "least-memory.yaml": fill("least", resources=resources)}


def _rungs(resources: Iterable[str], aliases: Mapping[str, str] = EMPTY, assumed: str = "") -> str:
    """Return the lines of rungs, with the other names of their devices."""
    names = {device_resource(profile): alias for alias, profile in aliases.items()}
    lines = {name: f"resource: {name}    # with some drivers {names[name]}, which has no rung here" for name in names}
    lines[assumed] = f"{{resource: {assumed}, assume: true}}"
    return "\n".join(f"    - {lines.get(name, f'resource: {name}')}" for name in resources)


def _smaller_rungs(plain: Sequence[str]) -> Iterator[str]:
    """Yield the lines of rungs below the largest device, each with the memory that a pod then must need at most."""
    sizes = [profile_order(each)[1] for each in plain]
    rungs = [
        f"    - {{resource: {device_resource(profile)}, when: variables.least <= {size}}}"
        for profile, size in zip(plain, sizes, strict=True)
    ]
    for number in range(1, len(plain)):
        relation = "less memory than" if sizes[number] < sizes[number - 1] else "the same memory as"
        yield f"{rungs[number].ljust(max(map(len, rungs[1:])))}    # {relation} {plain[number - 1]}"


def partition_ladders(card: Card) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield each memory mode in which a card can be divided, with the resource of whole cards and the rungs."""
    ordered = sorted(card.partitions, key=card.partitions.__getitem__)
    for number, mode in enumerate(sorted({_mode(name) for name in ordered if card.partitions[name] > 1})):
        parts = [name for name in ordered if card.partitions[name] == 1 or _mode(name) == mode]
        whole = f"{parts[0].partition('/')[0]}/gpu"
        # In later ladders the largest comes first: requests for it are the first ladder's.
        yield mode, whole, (*parts[:1], whole, *parts[1:]) if number else (whole, *parts)


def _mode(partition: str) -> str:
    return partition.rpartition("_")[2]
