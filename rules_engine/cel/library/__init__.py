"""Functions of the dialect: one module per library. A function of CEL keeps its name in Python where it is free."""

from functools import lru_cache

from rules_engine.cel.library import (
    cluster,
    core,
    encoders,
    lists,
    math,
    named_formats,
    network,
    optionals,
    quantity,
    regex,
    semver,
    sets,
    strings,
    url,
)
from rules_engine.cel.values.functions import Functions, Library

_LIBRARIES = (
    core.LIBRARY,
    optionals.LIBRARY,
    strings.LIBRARY,
    encoders.LIBRARY,
    math.LIBRARY,
    lists.LIBRARY,
    sets.LIBRARY,
    regex.LIBRARY,
    url.LIBRARY,
    network.LIBRARY,
    named_formats.LIBRARY,
    semver.LIBRARY,
    quantity.LIBRARY,
    cluster.LIBRARY,
)


@lru_cache(maxsize=4)
def dialect_functions(*more: Library) -> Functions:
    """Return the functions of all environments, and of more libraries."""
    return Functions(overload for library in (*_LIBRARIES, *more) for overload in library.overloads)
