"""Functions of the dialect: one module per library. A function of CEL keeps its name in Python where it is free."""

from functools import lru_cache

from rules_engine.language.cel.library import (
    cluster,
    core,
    lists,
    math,
    named_formats,
    network,
    optionals,
    quantity,
    semver,
    strings,
    url,
)
from rules_engine.language.cel.values.functions import Functions, Library

_MODULES = (core, optionals, strings, math, lists, url, network, named_formats, semver, quantity, cluster)


@lru_cache(maxsize=4)
def dialect_functions(*more: Library) -> Functions:
    """Return the functions of all environments, and of more libraries."""
    libraries = (*(module.LIBRARY for module in _MODULES), *more)
    return Functions(overload for library in libraries for overload in library.overloads)
