"""HTML pages that need no other file. The only module that imports jinja2."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rules_engine.model.excerpt import visible
from rules_engine.model.wording import counted

PARTS = Path(__file__).parent
"""The folder of `page.html`, which each page extends, its style, and macros."""


def render(template: Path, **values: object) -> str:
    """Return the page of a template. Markup and control characters in texts are escaped."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, PARTS]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    return environment.get_template(template.name).render(counted=counted, **values)


def _shown(value: object) -> object:
    """Escape control characters of a text; what is HTML already stays."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
