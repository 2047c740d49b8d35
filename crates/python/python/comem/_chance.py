"""What differs by chance from one process to the next: Python's hashes of strings, and with them the order of sets.

Each interpreter draws a seed for them when it starts, unless PYTHONHASHSEED names one; later it can be neither
changed nor, once drawn, be read. `comem run` and `comem exec` name one for all nodes of a job. A cluster's caller has
started before, and workers cannot take its seed where it was drawn: who sends a function that calls ``hash`` is
warned.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import types
import warnings
from typing import Any, Iterator, List, Optional, Set

VARIABLE = "PYTHONHASHSEED"
#: Functions that are looked through for one that is sent.
FUNCTIONS_MAX = 100


def _seed() -> Optional[str]:
    if not sys.flags.hash_randomization:
        return "0"
    named = "" if sys.flags.ignore_environment else os.environ.get(VARIABLE, "")
    return named if named.isdecimal() else None


#: The seed that this interpreter was started with; None if it has drawn one.
SEED: Optional[str] = _seed()

_warned = False


def say_if_nodes_differ() -> None:
    """On a job's node 0: says once that its nodes' hashes differ, if they do and that is not asked for."""
    if SEED is not None or os.environ.get(VARIABLE) == "random" and not sys.flags.ignore_environment:
        return
    why = (
        "this interpreter ignores it (-E or -I)"
        if sys.flags.ignore_environment
        else "it is not set, as `comem run` sets it"
    )
    text = (
        f"comem: hash() of strings, and the order of sets of them, differ from node to node: {VARIABLE} would make "
        f"them alike, but {why}; what is dealt out by hash() or made in a set's order would go wrong: "
        "use zlib.crc32(word.encode()), and sorted()"
    )
    try:
        print(text, file=sys.stderr, flush=True)
    except Exception:  # noqa: BLE001 - a stream of the program's own; the others must not wait for us
        pass


def warn_of(function: Any) -> None:
    """Warns, once in a process, of a function for several nodes that calls ``hash``, where its values differ."""
    global _warned
    if _warned or SEED is not None or (name := _caller_of_hash(function)) is None:
        return
    _warned = True
    warnings.warn(
        f"{name} calls hash(), which gives another number for the same string on each node of a comem.Cluster: "
        f"start this interpreter with {VARIABLE}=0 in its environment, or use zlib.crc32(word.encode())",
        RuntimeWarning,
        stacklevel=4,
    )


def _caller_of_hash(function: Any) -> Optional[str]:
    """The name of the function that calls the built-in ``hash``: this one, or one of its module that it refers to."""
    seen: Set[int] = set()
    left = [function]
    while left and len(seen) < FUNCTIONS_MAX:
        one = left.pop()
        while isinstance(one, (functools.partial, types.MethodType)):
            one = one.func if isinstance(one, functools.partial) else one.__func__
        if not isinstance(one, types.FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        names = {name for code in _codes(one.__code__) for name in code.co_names}
        if (
            "hash" in names
            and any(map(_loads_hash, _codes(one.__code__)))
            and one.__globals__.get("hash", builtins.hash) is builtins.hash
        ):
            return one.__qualname__
        known = [one.__globals__[name] for name in names if name in one.__globals__]
        left += [other for other in known + _closed_over(one) if getattr(other, "__module__", None) == one.__module__]
    return None


def _loads_hash(code: types.CodeType) -> bool:
    """Whether code uses a global name ``hash``, and not an attribute's."""
    return any(
        one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval == "hash" for one in dis.get_instructions(code)
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _closed_over(function: types.FunctionType) -> List[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            pass  # not there yet
    return found
