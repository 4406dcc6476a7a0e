"""Tables of metrics in docs/reference/metrics.md. `python -m tools.metric_reference` updates them."""

from collections.abc import Mapping

from rules_engine.server.telemetry import finding_metrics, metrics
from rules_engine.server.telemetry.families import Family, MetricType
from tools.documents import REPOSITORY, fill_marked

DOCUMENT = REPOSITORY / "docs/reference/metrics.md"

TABLES: Mapping[str, tuple[Family, ...]] = {
    "server": metrics.FAMILIES,
    "doctor": tuple(each for each in finding_metrics.FAMILIES if each.name.startswith("gpu_rules_doctor_")),
}


def exposed_name(family: Family) -> str:
    """Return the name in the exposition; a histogram has _bucket, _sum and _count besides."""
    return f"{family.name}_total" if family.kind is MetricType.COUNTER else family.name


def _table(families: tuple[Family, ...]) -> str:
    rows = (
        f"| `{exposed_name(each)}` | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |\n"
        for each in families
    )
    return f"| metric | labels | meaning |\n|---|---|---|\n{''.join(rows)}"


def renewed(text: str) -> str:
    """Return the document with current tables."""
    return fill_marked(text, r"metrics: (\w+)", lambda name: _table(TABLES[name]))


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
