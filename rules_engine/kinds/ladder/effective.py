"""Settings of a ladder: its rungs, and the nodes that count."""

from collections.abc import Iterator

from rules_engine.kinds.ladder.value import FallbackLadder
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.effective import Setting, setting


def effective(ladder: FallbackLadder, _namespace: str) -> Iterator[Setting]:
    """Yield the rungs, from the highest down, and the filter of nodes; they are the same in every namespace."""
    for index, rung in enumerate(ladder.rungs):
        path = f"rungs[{index}]"
        yield setting(path, rung.resource, rung.location)
        if rung.weight is not None:
            yield setting(f"{path}.weight", rung.weight, rung.origin.get("weight"))
        if rung.when is not None:
            yield setting(f"{path}.when", rung.when.text, rung.when.location)
        if rung.assume:
            yield setting(f"{path}.assume", rung.assume, rung.origin.get("assume"))
    if ladder.nodes.selector:
        yield setting("nodes.selector", str(ladder.nodes.selector), ladder.origin.get(("nodes", "selector")))
    if ladder.nodes.require:
        needs: list[Json] = [*sorted(need.value for need in ladder.nodes.require)]
        yield setting("nodes.require", needs, ladder.origin.get(("nodes", "require")))
