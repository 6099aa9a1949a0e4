"""Decides which form of the routing index a process has: packed where numba can be imported, else the dict form.

The packed form is compiled in the thread that loads the index, so that no process starts later for it; until it is, the
index says `loading`. numba keeps what it compiled beside the module, else in the user's cache directory, or where
`NUMBA_CACHE_DIR` says; where none of them may be written it compiles anew in every process, which takes seconds.
"""

import importlib
import logging

from routing.index import UNLIMITED, DictIndex, Index

_log = logging.getLogger(__name__)
_said: set[str] = set()


def best(bytes_max: int = UNLIMITED) -> Index:
    """An empty index of the best form there is; it is compiled."""
    try:
        jit = importlib.import_module("routing.index_jit")
    except ImportError as error:
        if not _said:
            _log.warning("the routing index is in its dict form, slower and larger: %s", error)
        _said.add("dict")
        return DictIndex(bytes_max)
    if "packed" not in _said:
        jit.warm()
        _said.add("packed")
    index: Index = jit.PackedIndex(bytes_max)
    return index
