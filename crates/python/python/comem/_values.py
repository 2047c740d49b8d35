"""What a caller's values say besides their numbers.

Shared memory holds numbers: no mask, no unit, no label, no arithmetic of a class's own. NumPy drops all that without
a word where it makes a plain array of something. Here it is refused, with the words that make plain numbers of it on
purpose.
"""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np

from ._errors import ArgumentError

#: Classes of arrays that are no more than their numbers.
_PLAIN = (np.ndarray, np.memmap)
#: Types of elements of lists that are looked at no further.
_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None)))
#: Packages whose objects have labels, and values that are missing.
_LABELLED = ("pandas", "polars", "pyarrow")
#: What objects of other packages have that say more than numbers: what that is, and how to get the numbers.
_MORE: Tuple[Tuple[str, str, str], ...] = (
    ("mask", "a mask", "fill what is masked, as x.filled(value) does, or pass the numbers and the mask as two arrays"),
    ("unit", "a unit", "pass its numbers, as x.value or x.magnitude, and the unit beside them"),
    ("units", "a unit", "pass its numbers, as x.value or x.magnitude, and the unit beside them"),
    (
        "tocsr",
        "a sparse structure",
        "pass x.toarray(), or the arrays that it consists of, such as x.data and x.indices",
    ),
    ("coords", "labels", "pass x.to_numpy()"),
    ("iloc", "labels", "pass x.to_numpy()"),
    ("null_count", "values that may be missing", "pass x.to_numpy()"),
)


def refuse_more(x: Any) -> None:
    """Sees to it that a plain array of ``x`` says all that ``x`` does.

    Lists and tuples are looked through.

    Raises
    ------
    ArgumentError
        When ``x``, or something in it, has a mask, a unit, labels or an arithmetic of its own: it says how to get the
        numbers.
    """
    kind = type(x)
    if kind in _SCALARS:
        return
    if kind in _PLAIN:
        if x.dtype == object:
            _look_through(x.ravel().tolist())
    elif isinstance(x, (list, tuple)):
        _look_through(x)
    elif (found := _found(x)) is not None:
        raise ArgumentError(f"a {kind.__name__} has {found[0]}, which would be lost: {found[1]}")


def _look_through(items: Any) -> None:
    kinds = set(map(type, items)) - _SCALARS
    if all(issubclass(kind, np.generic) for kind in kinds):
        return
    for item in items:
        if type(item) in kinds:
            refuse_more(item)


def _found(x: Any) -> Any:
    """What an object says besides its numbers, and what to do; None where that is nothing."""
    if isinstance(x, np.generic):
        return None
    if isinstance(x, np.matrix):
        return "an arithmetic of its own (* multiplies matrices)", "pass numpy.asarray(x)"
    if type(x).__module__.partition(".")[0] in _LABELLED:
        return "labels or missing values", "pass x.to_numpy()"
    for attribute, what, advice in _MORE:
        if _has(x, attribute):
            return what, advice
    if isinstance(x, np.ndarray):
        return (
            "a class of its own",
            "pass numpy.asarray(x) if its numbers alone are meant, and view them as that class afterwards",
        )
    return None


def _has(x: Any, attribute: str) -> bool:
    try:
        return hasattr(x, attribute)
    except Exception:  # noqa: BLE001 - whatever the object's own code raises
        return False
