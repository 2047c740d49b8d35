"""What an array is to be, as its caller says it: shape, type of elements, and homes of its pages."""

from __future__ import annotations

import operator
from typing import Any, List, Tuple, Union

import numpy as np

from . import _words
from ._collective import parts
from ._errors import ArgumentError
from ._job import size

PAGE_BYTES = 4096
#: Fewer bytes than these has an array: a sum of sizes still fits what the system counts with.
BYTES_END = 1 << 62
#: What NumPy can make: 64 from its version 2 on.
DIMENSIONS_MAX = 64 if int(np.__version__.split(".")[0]) >= 2 else 32

Home = Union[str, int]


def shape_of(shape: Any) -> Tuple[int, ...]:
    """A shape as a tuple of whole numbers."""
    try:
        dims = (shape,) if np.ndim(shape) == 0 else tuple(shape)
        dims = tuple(operator.index(n) for n in dims)
    except (TypeError, ValueError):
        raise ArgumentError(f"{_words.of(shape)} is no shape; use a whole number or a tuple of them") from None
    if any(n < 0 for n in dims):
        raise ArgumentError(f"the shape {dims} has a negative size")
    if len(dims) > DIMENSIONS_MAX:
        raise ArgumentError(f"NumPy's arrays have at most {DIMENSIONS_MAX} dimensions, not {len(dims)}")
    return dims


def dtype_of(dtype: Any) -> np.dtype:
    """A type of elements that can be shared."""
    try:
        dtype = np.dtype(dtype)
    except Exception as error:  # noqa: BLE001 - NumPy raises several; whichever it is, the others must not wait for us
        raise ArgumentError(f"{_words.of(dtype)} is no type of elements: {error}") from None
    if dtype.hasobject:
        raise ArgumentError(
            f"elements of type {dtype} are references to Python objects of one process; share numbers, or fields of "
            "them"
        )
    if dtype.itemsize == 0:
        raise ArgumentError(f"elements of type {dtype} have no size; give the length, as in \"S16\"")
    return dtype


def homes_of(home: Home, rows: int, nbytes: int) -> Tuple[str, List[int]]:
    """The homes of an array's pages, as the runtime names them. With "block", row i lives where ``split`` puts it."""
    if isinstance(home, str):
        if home not in ("block", "cyclic", "first-touch", "automatic"):
            raise ArgumentError(
                f'there is no home {_words.of(home)}; use "block", "cyclic", "first-touch", "automatic" or a '
                "node's number"
            )
        return home, _runs(rows, nbytes) if home == "block" else []
    try:
        node = operator.index(home)
    except TypeError:
        raise ArgumentError(
            f"{_words.of(home)} is no home; use the name of a way to place pages, or a node's number"
        ) from None
    if not 0 <= node < size():
        raise ArgumentError(f"there is no node {node} to be home; the job has {size()} nodes")
    return "node", [node]


def _runs(rows: int, nbytes: int) -> List[int]:
    """How many pages of each node's rows; a page with rows of two nodes goes to the one with more of its bytes."""
    if rows == 0 or nbytes // PAGE_BYTES < size():
        return []
    pages = -(-nbytes // PAGE_BYTES)
    ends = [round(end * (nbytes / rows) / PAGE_BYTES) for _, end in parts(rows)]
    ends[-1] = pages
    runs = [end - start for start, end in zip([0] + ends, ends)]
    return runs if min(runs) > 0 and max(runs) < 1 << 32 else []
