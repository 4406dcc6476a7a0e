"""Generator of the saved parser of CEL, for changes of a grammar or of lark (python -m tools.cel_tables)."""

import io
import pickle
from importlib.metadata import version

from rules_engine.language.cel.syntax.parser import TABLES, build_parser, grammar_folder, parser_digest

LIBRARIES = {"lark": "1.3.1", "cel-python": "0.5.0"}
"""The versions that the file was written with; with others the parser is built at run time."""


def installed() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


def saved() -> bytes:
    """Return the contents of the file, without the path of the grammar's folder."""
    folder = grammar_folder()
    buffer = io.BytesIO()
    build_parser(folder).save(buffer)
    parser = pickle.loads(buffer.getvalue())
    parser["data"]["options"]["import_paths"] = []
    content = pickle.dumps(parser, protocol=pickle.HIGHEST_PROTOCOL)
    return parser_digest(folder, content) + content


if __name__ == "__main__":
    TABLES.write_bytes(saved())
