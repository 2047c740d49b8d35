"""What all nodes do together: telling each other, agreeing, reducing, broadcasting.

Small things travel as the numbers of one reduction, to which each node adds its own in its own place; large ones
through a scratch array in shared memory.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import operator
import pickle
import struct
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from . import _core, _values, _words
from ._errors import ArgumentError, Error
from ._job import rank, size, together
from ._sync import at_least

#: Bytes of an object that still travel within a reduction.
SMALL_BYTES = 4096
#: Bytes of a description that are shown when nodes disagree.
SHOWN_BYTES = 240

_scratch: Optional[np.ndarray] = None
_numbers = 0


def renewed() -> None:
    """This process has parted with its job."""
    global _scratch, _numbers
    _scratch, _numbers = None, 0


def next_number() -> int:
    """The number of the next collective allocation, the same on every node."""
    global _numbers
    _numbers += 1
    return _numbers


def gather_numbers(mine: Sequence[int]) -> List[List[int]]:
    """Every node's numbers, of which all give as many."""
    together()
    if size() == 1:
        return [list(mine)]
    count = len(mine)
    words = [0] * (count * size())
    words[rank() * count : (rank() + 1) * count] = mine
    words = _core.reduce_i64("sum", words)
    return [words[node * count : (node + 1) * count] for node in range(size())]


def gather_bytes(mine: bytes) -> List[bytes]:
    """Every node's bytes; for short ones."""
    lengths = [n for (n,) in gather_numbers([len(mine)])]
    padded = mine.ljust(-(-max(lengths) // 8) * 8, b"\0")
    words = gather_numbers(np.frombuffer(padded, np.int64).tolist())
    return [np.array(w, np.int64).tobytes()[:n] for w, n in zip(words, lengths)]


def agree(what: str, arguments: str, wrong: Optional[Error] = None, extra: int = 0) -> List[int]:
    """Sees to it that all nodes call ``what`` with the same arguments; gives everybody's ``extra``.

    A node that found its own arguments ``wrong`` takes part all the same, or the others would wait for it.

    Raises
    ------
    ArgumentError
        On every node, when arguments differ: it names the first node that differs from node 0.
    """
    said = f"{what}({arguments})" if wrong is None else f"{what}: {wrong}"
    digest = int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little") >> 2
    heard = gather_numbers([digest, extra])
    others = [node for node, (theirs, _) in enumerate(heard) if theirs != heard[0][0]]
    if others:
        texts = gather_bytes(said.encode()[:SHOWN_BYTES])
        if wrong is None:
            first, other = (texts[node].decode(errors="replace") for node in (0, others[0]))
            raise ArgumentError(
                f"node 0 called {first}, but node {others[0]} called {other}; call it alike on every node"
            )
    if wrong is not None:
        raise wrong
    return [theirs for _, theirs in heard]


def scratch(nbytes: int) -> np.ndarray:
    """Shared bytes for what is under way; the caller ends with a barrier. Collective."""
    global _scratch
    if _scratch is None or _scratch.nbytes < nbytes:
        nbytes = 1 << max(nbytes - 1, 1 << 20).bit_length()
        _scratch = None
        _scratch = np.asarray(_core.allocate(nbytes, next_number(), "block", [], None, "comem scratch"))
    return _scratch


_KINDS = {"i": np.int64, "u": np.int64, "b": np.int64, "f": np.float64, "c": np.complex128}
_OPERATIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}
#: Elements that are made wider at a time.
_PIECE = 1 << 15


#: Bits of the lower part of a whole number, whose sums over all nodes fit 64.
_LOW_BITS = 32


def _too_large(dtype: np.dtype) -> OverflowError:
    return OverflowError(
        f"a sum over all nodes does not fit {dtype}; reduce a wider type, as x.astype(numpy.int64), or float64"
    )


def _sum_whole(values: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Sums of whole numbers, exact: upper parts, and lower ones from 0 to 2**32 - 1."""
    wide = values.astype(np.int64).ravel()
    words = np.concatenate([wide >> _LOW_BITS, wide & (1 << _LOW_BITS) - 1])
    high, low = np.array(_core.reduce_i64("sum", words.tolist()), np.int64).reshape(2, -1)
    return high + (low >> _LOW_BITS), low & (1 << _LOW_BITS) - 1


def _fitting(high: np.ndarray, low: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers of two parts each, in one type."""
    if not ((-1 << 31 <= high) & (high < 1 << 31)).all():
        raise _too_large(dtype)
    out: np.ndarray = high << _LOW_BITS | low
    bounds = np.iinfo(dtype)
    if not ((bounds.min <= out) & (out <= bounds.max)).all():
        raise _too_large(dtype)
    return out.astype(dtype)


def _reduce_small(values: np.ndarray, op: str) -> np.ndarray:
    if op == "sum" and values.dtype.kind in "iu":
        return _fitting(*_sum_whole(values), values.dtype).reshape(values.shape)
    wide: np.ndarray = values.astype(_KINDS[values.dtype.kind]).ravel()
    if wide.dtype == np.complex128:
        wide = wide.view(np.float64)
    if wide.dtype == np.int64:
        out = np.array(_core.reduce_i64(op, wide.tolist()), np.int64)
    else:
        out = np.array(_core.reduce_f64(op, wide.tolist()), np.float64)
    if values.dtype.kind == "c":
        out = out.view(np.complex128)
    return out.astype(values.dtype).reshape(values.shape)


def _reduce_large(values: np.ndarray, op: str) -> np.ndarray:
    """Each node puts its numbers into a row of the scratch array, and reduces a part of the columns."""
    n, nodes = values.size, size()
    nbytes = (nodes + 1) * values.nbytes
    room = scratch(nbytes + nodes)
    rows = room[:nbytes].view(values.dtype).reshape(nodes + 1, n)
    fits = room[nbytes : nbytes + nodes]
    rows[rank()] = values.ravel()
    _core.barrier()
    mine = split(n)
    for low in range(mine.start, mine.stop, _PIECE):
        piece = slice(low, min(low + _PIECE, mine.stop))
        rows[nodes, piece] = _combined(rows[:nodes, piece], op)
    fits[rank()] = op != "sum" or values.dtype.kind not in "iu" or _sums_fit(rows[:nodes, mine])
    _core.barrier()
    out, good = rows[nodes].copy().reshape(values.shape), fits.all()
    _core.barrier()
    if not good:
        raise _too_large(values.dtype)
    return out


def _combined(rows: np.ndarray, op: str) -> np.ndarray:
    """Rows combined in their order; those of floating-point numbers in the type in which small ones are."""
    kind = rows.dtype.kind
    out = rows[0].astype(_KINDS[kind] if kind in "fc" else rows.dtype)
    for row in rows[1:]:
        _OPERATIONS[op](out, row, out=out)
    return out


def _sums_fit(rows: np.ndarray) -> bool:
    """Whether the sums of columns fit the type of these whole numbers."""
    if rows.size == 0:
        return True
    bounds, n = np.iinfo(rows.dtype), len(rows)
    if bounds.min <= n * min(0, int(rows.min())) and n * int(rows.max()) <= bounds.max:
        return True
    wide = rows.astype(np.int64)
    high, low = (wide >> _LOW_BITS).sum(axis=0), (wide & (1 << _LOW_BITS) - 1).sum(axis=0)
    try:
        _fitting(high + (low >> _LOW_BITS), low & (1 << _LOW_BITS) - 1, rows.dtype)
    except OverflowError:
        return False
    return True


def _reducible(x: Any, op: str) -> np.ndarray:
    """The numbers that are to be reduced."""
    _values.refuse_more(x)
    try:
        values = np.asarray(x)
    except Exception as error:  # noqa: BLE001 - whatever x's own code raises: the others must not wait for us
        raise ArgumentError(f"what is to be reduced makes no array: {error}") from None
    if op not in tuple(_OPERATIONS):
        raise ArgumentError(f"there is no reduction {_words.of(op)}; use \"sum\", \"min\" or \"max\"")
    if values.dtype.kind not in _KINDS or (values.dtype.kind == "c" and op != "sum"):
        raise ArgumentError(f"numbers of type {values.dtype} have no {op}; use whole or floating-point numbers")
    if values.dtype == np.uint64 or values.dtype.itemsize > 16 or values.dtype.char == "g":
        raise ArgumentError(f"numbers of type {values.dtype} are too wide to reduce; use int64 or float64")
    return values


def allreduce(x: Any, op: str = "sum") -> Any:
    """Combines every node's ``x``; every node gets the result, the same bits everywhere and in every run.

    Parameters
    ----------
    x : number or array
        Of one shape and type on all nodes.
    op : {"sum", "min", "max"}
        How to combine. A NaN wins, as in NumPy.

    Returns
    -------
    number or ndarray
        An ``int``, ``float`` or ``complex`` for one, else a new private array of ``x``'s type. The sum of whole numbers
        is exact: as an ``int`` it may have any size. Floating-point numbers are added in float64 or complex128.

    Raises
    ------
    ArgumentError
        When ``op`` is unknown, ``x`` is neither or says more than numbers (a mask, a unit, labels), or nodes give
        different shapes or types; for whole numbers beyond int64 too.
    OverflowError
        On every node, when a sum of whole numbers in an array does not fit the array's type.
    """
    return _reduced("allreduce", x, op)


def _reduced(what: str, x: Any, op: str, wrong: Optional[Error] = None, more: str = "") -> Any:
    """As :func:`allreduce`, for a call that may be ``wrong`` otherwise and has ``more`` arguments."""
    values = np.zeros(0)
    try:
        values = _reducible(x, op)
    except ArgumentError as error:
        wrong = wrong or error
    # A single number goes with the question whether all do the same.
    single = values.ndim == 0 and values.dtype.kind != "c"
    numbers = agree(
        what, f"{values.shape}, {values.dtype}, {_words.of(op)}{more}", wrong, _word_of(values) if single else 0
    )
    if values.dtype.kind == "b" and op == "sum":
        values = values.astype(np.int64)
    one = np.ndim(x) == 0 and not isinstance(x, np.ndarray)
    # A warning would lead here, and an exception on one node leave the others waiting.
    with np.errstate(all="ignore"):
        if single:
            total = _reduce_words(numbers, values.dtype, op)
            if one and (op == "sum" and values.dtype.kind in "iu" or values.dtype == np.float64):
                return total
            if op == "sum" and values.dtype.kind in "iu" and not _fits(total, values.dtype):
                raise _too_large(values.dtype)
            out = np.array(total).astype(values.dtype)
        else:
            small = size() == 1 or values.nbytes <= SMALL_BYTES
            out = _reduce_small(values, op) if small else _reduce_large(values, op)
    return out.item() if one else out


def _fits(number: int, dtype: np.dtype) -> bool:
    bounds = np.iinfo(dtype)
    return int(bounds.min) <= number <= int(bounds.max)


def _word_of(number: np.ndarray) -> int:
    """The 64 bits of a number that is not complex."""
    word: int = struct.unpack("q", struct.pack("d", float(number)))[0] if number.dtype.kind == "f" else int(number)
    return word


def _reduce_words(words: Sequence[int], dtype: np.dtype, op: str) -> Any:
    """Every node's number combined in the nodes' order, from their bits: an ``int`` or ``float``."""
    numbers: Sequence[Any] = words
    if dtype.kind == "f":
        numbers = struct.unpack(f"{len(words)}d", struct.pack(f"{len(words)}q", *words))
    if op == "sum":
        return functools.reduce(operator.add, numbers)
    if any(number != number for number in numbers):
        return math.nan
    return min(numbers) if op == "min" else max(numbers)


def reduce(x: Any, op: str = "sum", root: int = 0) -> Any:
    """As :func:`allreduce`, but only node ``root`` gets the result; the others get None."""
    out = _reduced("reduce", x, op, _no_node(root), f", root={root}")
    return out if rank() == root else None


def _no_node(root: Any) -> Optional[ArgumentError]:
    """What is wrong with a node's number, if anything is."""
    try:
        there = 0 <= operator.index(root) < size()
    except TypeError:
        there = False
    return None if there else ArgumentError(f"there is no node {root!r}; the job has {size()} nodes")


def _pack(x: Any) -> bytes:
    return pickle.dumps(np.ascontiguousarray(x) if type(x) is np.ndarray and x.ndim else x, protocol=5)


def broadcast(x: Any = None, root: int = 0) -> Any:
    """Gives every node what node ``root`` passes: a number, an array, or anything that can be pickled.

    Parameters
    ----------
    x : object
        On node ``root``; elsewhere it is not looked at.
    root : int
        The node whose ``x`` counts.

    Returns
    -------
    object
        ``x`` itself on node ``root``, a private copy elsewhere.

    Raises
    ------
    ArgumentError
        On every node, when ``x`` cannot be pickled.
    """
    wrong = _no_node(root)
    packed = b""
    failed: Optional[Exception] = None
    if wrong is None and rank() == root and size() > 1:
        try:
            packed = _pack(x)
        except Exception as error:  # noqa: BLE001 - whatever x's own code raises: the others must not wait for us
            failed = error
    length = agree("broadcast", f"root={root}", wrong, -1 if failed else len(packed))[root]
    if failed is not None:
        raise ArgumentError(f"what this node broadcasts cannot be pickled: {failed}") from failed
    if length < 0:
        raise ArgumentError(f"node {root} cannot broadcast what it passes: it cannot be pickled")
    if size() == 1:
        return x
    out = _send_small(packed, length, root) if length <= SMALL_BYTES else _send_large(packed, length, root)
    return x if rank() == root else pickle.loads(out)


def _send_small(packed: bytes, length: int, root: int) -> bytes:
    padded = packed.ljust(-(-length // 8) * 8, b"\0") if rank() == root else bytes(-(-length // 8) * 8)
    words = _core.reduce_i64("sum", np.frombuffer(padded, np.int64).tolist())
    return np.array(words, np.int64).tobytes()[:length]


def _send_large(packed: bytes, length: int, root: int) -> bytes:
    room = scratch(length)[:length]
    if rank() == root:
        room[:] = np.frombuffer(packed, np.uint8)
    _core.barrier()
    out = packed if rank() == root else room.tobytes()
    _core.barrier()
    return out


def scatter(x: Any = None, root: int = 0) -> Any:
    """Gives each node its part of what node ``root`` passes. Collective.

    Parameters
    ----------
    x : array or sequence
        On node ``root``; elsewhere it is not looked at. Node i gets the part of ``range(len(x))`` that its
        :func:`split` has: rows of an array, items of a list. All are pickled, so that what is not only numbers stays
        as it is.
    root : int
        The node whose ``x`` counts.

    Returns
    -------
    array or sequence
        A private copy of this node's part. Where there are fewer rows than nodes, the last nodes' have no rows.

    Raises
    ------
    ArgumentError
        On every node, when there is no node ``root``, or its ``x`` has no length, no slices, or cannot be pickled.

    Examples
    --------
    >>> mine = comem.scatter(np.arange(10) if comem.rank == 0 else None)
    """
    wrong = _no_node(root)
    pieces: List[bytes] = []
    failed: Optional[Exception] = None
    if wrong is None and rank() == root:
        try:
            pieces = [_pack(x[slice(*part)]) for part in parts(len(x))]
        except Exception as error:  # noqa: BLE001 - whatever x's own code raises: the others must not wait for us
            failed = error
    total = agree("scatter", f"root={root}", wrong, -1 if failed else sum(map(len, pieces)))[root]
    if failed is not None:
        what = f"what this node scatters cannot be split and sent: {failed}; pass an array of rows, or a list"
        raise ArgumentError(what) from failed
    if total < 0:
        raise ArgumentError(f"node {root} cannot scatter what it passes: it cannot be split, or not be pickled")
    if size() == 1:
        return pickle.loads(pieces[0])
    lengths = _core.reduce_i64("sum", list(map(len, pieces)) or [0] * size())
    start, length = sum(lengths[: rank()]), lengths[rank()]
    if total <= SMALL_BYTES:
        piece = _send_small(b"".join(pieces), total, root)[start : start + length]
    else:
        room = scratch(total)[:total]
        if rank() == root:
            room[:] = np.frombuffer(b"".join(pieces), np.uint8)
        _core.barrier()
        piece = room[start : start + length].tobytes()
        _core.barrier()
    return pickle.loads(piece)


def gather(x: Any, root: int = 0) -> Optional[List[Any]]:
    """Gives node ``root`` what every node passes. Collective.

    Parameters
    ----------
    x : object
        A number, an array, or anything that can be pickled; it may differ in shape and kind from node to node.
    root : int
        The node that gets them.

    Returns
    -------
    list or None
        On node ``root``: everybody's ``x`` by node, its own itself and the others' as private copies. None elsewhere.

    Raises
    ------
    ArgumentError
        On every node, when there is no node ``root``, or what some node passes cannot be pickled.

    Examples
    --------
    >>> rows = comem.gather(mine)
    >>> if comem.rank == 0:
    ...     table = np.concatenate(rows)
    """
    wrong = _no_node(root)
    packed = b""
    failed: Optional[Exception] = None
    if wrong is None and size() > 1:
        try:
            packed = _pack(x)
        except Exception as error:  # noqa: BLE001 - whatever x's own code raises: the others must not wait for us
            failed = error
    lengths = agree("gather", f"root={root}", wrong, -1 if failed else len(packed))
    if failed is not None:
        raise ArgumentError(f"what this node gives to gather cannot be pickled: {failed}") from failed
    if min(lengths) < 0:
        raise ArgumentError(f"node {lengths.index(min(lengths))} gives to gather what cannot be pickled")
    if size() == 1:
        return [x]
    if sum(lengths) <= SMALL_BYTES:
        heard = gather_bytes(packed)
    else:
        room = scratch(sum(lengths))
        start = sum(lengths[: rank()])
        room[start : start + len(packed)] = np.frombuffer(packed, np.uint8)
        _core.barrier()
        ends = list(itertools.accumulate(lengths))
        heard = [room[end - n : end].tobytes() for end, n in zip(ends, lengths)] if rank() == root else []
        _core.barrier()
    if rank() != root:
        return None
    return [x if node == root else pickle.loads(data) for node, data in enumerate(heard)]


def parts(n: int) -> List[Tuple[int, int]]:
    """Where each node's part of ``range(n)`` begins and ends: all as equal as can be, the earlier ones longer by
    one."""
    base, more = divmod(n, size())
    starts = [node * base + min(node, more) for node in range(size() + 1)]
    return list(zip(starts, starts[1:]))


def split(n: int) -> slice:
    """This node's part of ``range(n)``, as a slice.

    Parameters
    ----------
    n : int
        How many things there are.

    Examples
    --------
    >>> mine = comem.split(len(a))
    >>> a[mine] *= 2
    """
    if not at_least(0, n):
        raise ArgumentError(f"{_words.of(n)} things cannot be split; give a whole number from zero on")
    return slice(*parts(n)[rank()])
