"""The functions of the dialect, one module for each of the libraries that Kubernetes names."""

from functools import lru_cache

from rules_engine.cel.functions import Functions
from rules_engine.cel.library import cluster, core, optionals, quantity, strings

_LIBRARIES = (core.LIBRARY, optionals.LIBRARY, strings.LIBRARY, quantity.LIBRARY, cluster.LIBRARY)


@lru_cache(maxsize=1)
def functions() -> Functions:
    """Every function there is."""
    return Functions(overload for library in _LIBRARIES for overload in library.overloads)
