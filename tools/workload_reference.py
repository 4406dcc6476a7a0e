"""docs/reference/workloads.md, generated from the packaged rows. `python -m tools.workload_reference` updates it."""

from rules_engine.cluster.workloads.table import OWN_GROUPS, PACKAGED, read_group
from tools.documents import REPOSITORY

DOCUMENT = REPOSITORY / "docs/reference/workloads.md"

HEAD = """\
# Kinds of workloads

Commands that read manifests count the pods of these kinds as their controllers make them. Of other kinds, they count
one pod for each template, which makes answers [unknown](unknown.md), unless you
[add the kind](../how-to/preflight.md#workloads-of-your-own-kinds). An object that is suspended as a whole counts the
pods that it has once it is resumed.

The rows are in `rules_engine/cluster/workloads/kinds/`, a file for each API group, with the function of the controller
that gives each number. This page is generated from them.

| API group | kind | pod templates | pods start together |
|---|---|---|---|
"""


def document() -> str:
    """Return the page. Kinds without pods are one line."""
    lines, without = [], []
    for api_group in sorted(PACKAGED, key=lambda group: (group not in OWN_GROUPS, group)):
        for row in read_group(api_group).values():
            paths = "<br>".join(
                f"`{'.'.join(each.path).replace('.[]', '[]').replace('.{}', '{}')}`" for each in row.templates
            )
            group = row.group or "(core)"
            if row.templates:
                lines.append(
                    f"| {group} | {row.kind} | {paths} | {'where it says so' if 'minimum' in row.programs else ''} |\n"
                )
            else:
                without.append(f"{row.kind}{f' ({row.group})' if row.group else ''}")
    return f"{HEAD}{''.join(lines)}\nThese kinds name GPUs, and have no pods: {', '.join(sorted(without))}.\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
