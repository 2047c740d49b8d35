"""Shared arrays: ordinary ``numpy.ndarray`` objects whose memory all nodes share.

The base of each is an array of as many elements, and that one's base the ``_Memory`` with a ``Region``; views hold on
to it as views always do. A region that no node holds any more is given back at the next collective allocation, so
memory never goes while somebody looks at it.
"""

from __future__ import annotations

import hashlib
import math
import threading
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from . import _core, _values, _words
from ._collective import agree, broadcast, gather_numbers, next_number, parts, split
from ._errors import ArgumentError, Error, FinishedError, SendError, StartError
from ._job import job_name, rank, size, still_open
from ._shapes import BYTES_END, PAGE_BYTES, Home, dtype_of, homes_of, shape_of
from ._sync import hashed, whole

def _new(
    what: str,
    shape: Any,
    dtype: Any,
    order: str,
    home: Home,
    engine: Optional[str],
    name: Optional[str],
    check: Callable[[Tuple[int, ...], np.dtype], str] = lambda shape, dtype: "",
    wrong: Optional[Error] = None,
) -> np.ndarray:
    """Checks, agrees (on what ``check`` tells, too), frees what every node has dropped, allocates.

    A node that knows already what is ``wrong`` with its arguments takes part up to the agreement.
    """
    nbytes, homes, said = 0, ("automatic", [0]), ""
    try:
        size()
        if wrong is not None:
            raise wrong
        shape, dtype = shape_of(shape), dtype_of(dtype)
        if order not in ("C", "F"):
            raise ArgumentError(f"there is no order {_words.of(order)}; use \"C\" or \"F\"")
        if not isinstance(name, (str, type(None))):
            raise ArgumentError(f"{_words.of(name)} is no name; use a string")
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes >= BYTES_END:
            raise ArgumentError(f"an array of shape {shape} and type {dtype} is larger than any address space")
        more = check(shape, dtype)
        rows = (shape[0] if order == "C" else shape[-1]) if shape else 0
        homes = homes_of(home, rows, nbytes)
        options = dict(order=order, home=home, engine=engine, name=name)
        said = ", ".join([f"{shape}, {dtype}", *(f"{key}={_words.of(value)}" for key, value in options.items())]) + more
    except ArgumentError as error:
        wrong = error
    drops = agree(what, said, wrong, len(_core.dropped_regions()))
    if min(drops) > 0:
        _free_dropped(max(drops))
    label = name or f"{what}({'x'.join(map(str, shape))}, {dtype})"
    region = _core.allocate(max(nbytes, 1), next_number(), homes[0], homes[1], engine, label)
    memory = _Memory(region, math.prod(shape + dtype.shape))
    _held[region.number] = memory
    elements = np.asarray(memory)
    return _handed_out(np.ndarray(shape, dtype, buffer=elements, order=order))  # type: ignore[call-overload, arg-type]


def _free_dropped(most: int) -> None:
    # More may have been dropped since the nodes agreed on a number; that waits for the next time.
    mine = sorted(_core.dropped_regions())[:most]
    heard = gather_numbers(mine + [0] * (most - len(mine)))
    everybodys = set(heard[0]).intersection(*heard[1:]) - {0}
    _core.free_regions(sorted(everybodys))


def zeros(
    shape: Any,
    dtype: Any = float,
    order: str = "C",
    *,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array of zeros. Collective: every node calls it with the same arguments.

    Parameters
    ----------
    shape : int or tuple of int
        As for ``numpy.zeros``.
    dtype : data-type
        Of numbers, or of fields of them; not of objects.
    order : {"C", "F"}
        How elements lie in memory.
    home : {"automatic", "block", "cyclic", "first-touch"} or int
        Where pages live, which makes a difference in speed alone. "block": with the node whose :func:`split` has the
        row (the column, with order "F"); "cyclic": page after page in turn; "first-touch": where they are used first; a
        number: all on that node; "automatic": where they are used first, and then with a node that alone writes them.
    engine : {"hlrc", "scope", "lrc", "multicast", "msi", "hardware"}, optional
        What keeps copies alike; without one, the job's.
    name : str, optional
        What reports call the array.

    Returns
    -------
    numpy.ndarray
        At the same address on every node.

    Raises
    ------
    ArgumentError
        When an argument makes no sense, or nodes pass different ones: it says which node.
    HeapFullError
        When there is no room.
    """
    return _new("zeros", shape, dtype, order, home, engine, name)


def empty(
    shape: Any,
    dtype: Any = float,
    order: str = "C",
    *,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array whose contents are not to be relied on. Otherwise as :func:`zeros`."""
    return _new("empty", shape, dtype, order, home, engine, name)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array full of ``fill_value``. Otherwise as :func:`zeros`; each node fills its part.

    Parameters
    ----------
    fill_value : scalar or array_like
        A number, or rows as for ``numpy.full``: the same on every node; its shape fits ``shape`` as NumPy broadcasts.
    dtype : data-type, optional
        Without one, that of ``fill_value``.

    Raises
    ------
    ArgumentError
        As for :func:`zeros`, and when ``fill_value`` does not fit, or says more than numbers (a mask, a unit, labels).
    """
    return _filled("full", shape, fill_value, dtype, order, home, engine, name)


def ones(
    shape: Any,
    dtype: Any = float,
    order: str = "C",
    *,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array of ones. Otherwise as :func:`zeros`; each node fills its part."""
    return _filled("ones", shape, 1, dtype, order, home, engine, name)


def _filled(
    what: str,
    shape: Any,
    fill_value: Any,
    dtype: Any,
    order: str,
    home: Home,
    engine: Optional[str],
    name: Optional[str],
    wrong: Optional[Error] = None,
) -> np.ndarray:
    filling: List[np.ndarray] = []
    try:
        _values.refuse_more(fill_value)
        if dtype is None:
            dtype = np.asarray(fill_value).dtype
    except ArgumentError as error:
        wrong = wrong or error
    except Exception:  # noqa: BLE001 - whatever the value's own code raises: the others must not wait for us
        dtype = float  # in which it makes no array either

    def check(shape: Tuple[int, ...], dtype: np.dtype) -> str:
        try:
            values = np.asarray(fill_value, dtype.base)
            filling.append(np.broadcast_to(values, shape + dtype.shape))
        except Exception as error:  # noqa: BLE001 - whatever the value's own code raises: nobody must wait for us
            raise ArgumentError(
                f"{_words.of(fill_value)} cannot fill an array of shape {shape} and type {dtype}: {error}"
            ) from None
        return f", fill_value={_contents(values)}"

    a = _new(what, shape, dtype, order, home, engine, name, check, wrong)
    block(a)[...] = _block_of(filling[0], a)
    _core.barrier()
    return a


def _contents(values: np.ndarray) -> str:
    """What is in an array, in words that differ where it does."""
    # Bytes say the same faster, where none of them is padding.
    if values.size > 8 and values.dtype.kind in "biufcSUmM" and values.dtype.char not in "gG":
        data = values.tobytes()
    else:
        text = repr(values.tolist())
        if len(text) <= 80:
            return text
        data = text.encode(errors="backslashreplace")
    return f"{values.size} elements of hash {hashlib.blake2b(data, digest_size=8).hexdigest()}"


def array(
    x: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array with node 0's ``x`` in it; what other nodes pass is not looked at. Otherwise as :func:`zeros`.

    Parameters
    ----------
    x : array_like
        On node 0.
    dtype : data-type, optional
        Without one, ``x``'s own.

    Raises
    ------
    ArgumentError
        On every node, when node 0's ``x`` makes no array of this type, or one of Python objects, or says more than
        numbers do: a masked array, a ``numpy.matrix``, a quantity with a unit, a sparse matrix, pandas' and its
        like's labels.
    """
    source: Optional[np.ndarray] = None
    about: Any = None
    if rank() == 0:
        try:
            _values.refuse_more(x)
            source = np.asarray(x, dtype)
            about = (source.shape, source.dtype)
        except ArgumentError as error:
            about = f"node 0 passes what cannot be shared: {error}"
        except Exception as error:  # noqa: BLE001 - whatever x's own code raises: the others must not wait for us
            about = f"what node 0 passes makes no array: {error}"
    about = broadcast(about)
    if isinstance(about, str):
        raise ArgumentError(about)
    a = _new("array", about[0], about[1], order, home, engine, name)
    if source is not None:
        a[...] = source
    _core.barrier()
    return a


def like(a: Any, dtype: Any = None, order: str = "K", shape: Any = None) -> Tuple[Any, Any, str]:
    """Shape, type and order of an array that is to be like ``a``.

    Raises
    ------
    ArgumentError
        When ``a`` makes no array, or says more than numbers do.
    """
    _values.refuse_more(a)
    try:
        pattern = a if isinstance(a, np.ndarray) else np.asarray(a)
    except Exception as error:  # noqa: BLE001 - whatever a's own code raises: other nodes must not wait for us
        raise ArgumentError(f"what the new array is to be like makes no array: {error}") from None
    if order in ("K", "A"):
        order = "F" if pattern.flags.fnc and pattern.ndim > 1 else "C"
    return pattern.shape if shape is None else shape, pattern.dtype if dtype is None else dtype, order


def _like(a: Any, dtype: Any, order: str, shape: Any) -> Tuple[Any, Any, str, Optional[Error]]:
    """As :func:`like`, with the error for a node that takes part in the agreement all the same."""
    try:
        return (*like(a, dtype, order, shape), None)
    except ArgumentError as error:
        return (), float, "C", error


def zeros_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    *,
    shape: Any = None,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array of zeros with the shape and type of ``a``. Collective.

    Parameters
    ----------
    a : array_like
        Shared or private, of one shape and type on every node; its contents are not looked at.
    dtype : data-type, optional
        Another type than ``a``'s.
    order : {"K", "C", "F"}
        How elements lie in memory; "K": as in ``a``, where that is one of the two others, else as "C".
    shape : int or tuple of int, optional
        Another shape than ``a``'s.
    home, engine, name
        As for :func:`zeros`.

    Raises
    ------
    ArgumentError
        As for :func:`zeros`, and when ``a`` makes no array, or says more than numbers do.
    """
    shape, dtype, order, wrong = _like(a, dtype, order, shape)
    return _new("zeros_like", shape, dtype, order, home, engine, name, wrong=wrong)


def empty_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    *,
    shape: Any = None,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array like ``a``, whose contents are not to be relied on. Otherwise as :func:`zeros_like`."""
    shape, dtype, order, wrong = _like(a, dtype, order, shape)
    return _new("empty_like", shape, dtype, order, home, engine, name, wrong=wrong)


def ones_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    *,
    shape: Any = None,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array of ones with the shape and type of ``a``. Otherwise as :func:`zeros_like`."""
    shape, dtype, order, wrong = _like(a, dtype, order, shape)
    return _filled("ones_like", shape, 1, dtype, order, home, engine, name, wrong)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    *,
    shape: Any = None,
    home: Home = "automatic",
    engine: Optional[str] = None,
    name: Optional[str] = None,
) -> np.ndarray:
    """A shared array like ``a`` full of ``fill_value``. Otherwise as :func:`full` and :func:`zeros_like`."""
    shape, dtype, order, wrong = _like(a, dtype, order, shape)
    return _filled("full_like", shape, fill_value, dtype, order, home, engine, name, wrong)


def open_npy(
    path: Any, *, home: Home = "block", engine: Optional[str] = None, name: Optional[str] = None
) -> np.ndarray:
    """A shared array with the contents of a ``.npy`` file. Each node reads its own part; a node without the file leaves
    that to node 0.

    Parameters
    ----------
    path : path-like
        A file that ``numpy.save`` wrote. Changes of the array do not change it.

    Raises
    ------
    ArgumentError
        When node 0 cannot read the file, or its elements are objects.
    """
    source: Optional[np.ndarray] = None
    try:
        source = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(source, np.ndarray):
            raise ValueError("it holds several arrays; load one with numpy.load, and share it with comem.array")
        about: Any = (source.shape, source.dtype, "F" if source.flags.fnc and source.ndim > 1 else "C")
    except Exception as error:  # noqa: BLE001 - a file may hold anything; the others must not wait for us
        about = f"{path} cannot be read: {error}"
    here = about
    about = broadcast(about)
    if isinstance(about, str):
        raise ArgumentError(about)
    shape, dtype, order = about
    a = _new("open_npy", shape, dtype, order, home, engine, name)
    have = [bool(n) for (n,) in gather_numbers([int(here == about)])]
    for node, (low, high) in enumerate(parts(_outer(a).shape[0] if a.ndim else 1)):
        if source is not None and rank() == (node if have[node] else 0):
            if a.ndim:
                _outer(a)[low:high] = _outer(source)[low:high]
            elif high > low:
                a[...] = source
    _core.barrier()
    return a


def _outer(a: np.ndarray) -> np.ndarray:
    """The array with that axis first along which it lies in memory: rows, or columns in Fortran's order."""
    return a.T if a.flags.fnc and a.ndim > 1 else a


def block(a: np.ndarray) -> np.ndarray:
    """This node's rows of an array (its columns, where that is how they lie in memory): a view.

    Together, the nodes' blocks are the array. With ``home="block"`` a node's block lives on that node.
    """
    if not isinstance(a, np.ndarray):
        raise ArgumentError(f"a {type(a).__name__} has no blocks; give an array")
    return _block_of(a, a)


def _block_of(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    """What is in ``x`` where this node's block is in ``a``, which has the same shape."""
    if a.ndim == 0:
        return x if rank() == 0 else x.reshape(1)[:0]
    return x[split(len(a))] if _outer(a) is a else x[..., split(a.shape[-1])]


def region_of(a: np.ndarray) -> Any:
    """The shared memory under an array.

    Raises
    ------
    ArgumentError
        When it is no shared array.
    """
    return _memory_of(a).region


def _memory_of(a: np.ndarray) -> _Memory:
    base: Any = a
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(a, np.ndarray):
        base = None
    elif not isinstance(base, _Memory):
        # NumPy makes some views by address: what holds on to the array then is an object of its own.
        base = _memory_around(*_extent(a))
    if base is None:
        raise ArgumentError("this is no shared array: make one with comem.zeros, comem.array and their kin")
    memory: _Memory = base
    if _is_earlier(memory):
        raise FinishedError(
            "this array belongs to an earlier comem.Cluster, and is memory of this process alone; "
            "share its numbers anew: Cluster.array(a)"
        )
    still_open()
    return memory


def _is_earlier(memory: _Memory) -> bool:
    return any(one.get(memory.region.number) is memory for one in _earlier)


def was_shared(a: np.ndarray) -> bool:
    """Whether an array was shared in a job that this process has parted with."""
    if not any(_earlier):
        return False
    memory = _memory_around(*_extent(a))
    return memory is not None and _is_earlier(memory)


def holds_any() -> bool:
    """Whether the program holds shared arrays of this job."""
    return len(_held) > 0


def bring_all() -> None:
    """Brings the contents of all shared arrays to this process, which is about to part with the others.

    Raises
    ------
    StartError
        When this host has no memory for them.
    """
    regions = [memory.region for memory in list(_held.values())]
    needed, free = sum(region.nbytes for region in regions), _free_bytes()
    if needed > free:
        raise StartError(
            f"{len(regions)} arrays of the earlier comem.Cluster would have to come here to keep their contents, "
            f"{needed >> 20} MiB, and this host has {free >> 20} MiB; drop some of them (del a), or make a Cluster of "
            "the same size and options"
        )
    _core.keep_copies()
    for region in regions:
        _core.prefetch(region.address, region.nbytes, False)


def _free_bytes() -> int:
    """Memory that programs of this host can still have."""
    with open("/proc/meminfo") as file:
        sizes = dict(line.split(":", 1) for line in file)
    return int(sizes["MemAvailable"].split()[0]) << 10


def renewed() -> None:
    """This process has parted with its job."""
    global _held
    _earlier[:] = [one for one in (*_earlier, _held) if len(one)]
    _held = weakref.WeakValueDictionary()


class _Memory:
    """A region as elements, of which NumPy makes the base of an array: there are libraries that compare an array's size
    with its base's, and copy what looks like a small part of something large.
    """

    __slots__ = ("region", "elements", "arrays", "__weakref__")

    def __init__(self, region: Any, elements: int) -> None:
        self.region = region
        self.elements = elements
        #: Arrays of it that the program was given and that are views of no others.
        self.arrays: List["weakref.ref[np.ndarray]"] = []

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        each = self.region.nbytes // max(self.elements, 1)
        return dict(version=3, typestr=f"|V{each}", shape=(self.elements,), data=(self.region.address, False))


#: What this node holds, by the region's number.
_held: "weakref.WeakValueDictionary[int, _Memory]" = weakref.WeakValueDictionary()
#: The same of jobs that this process has parted with.
_earlier: List["weakref.WeakValueDictionary[int, _Memory]"] = []
_reviving = threading.Lock()


def _extent(a: np.ndarray) -> Tuple[int, int]:
    """Where the memory of a view begins, and how many bytes there are up to its end."""
    start = a.__array_interface__["data"][0]
    if a.size == 0:
        return start, 0
    steps = [(n - 1) * stride for n, stride in zip(a.shape, a.strides)]
    return start + sum(step for step in steps if step < 0), sum(map(abs, steps)) + a.itemsize


def _memory_around(start: int, nbytes: int) -> Optional[_Memory]:
    """What this memory is a part of, if that is shared, or was in an earlier job."""
    for held in [held for one in (_held, *_earlier) for held in one.valuerefs()]:
        memory = held()
        if memory is not None:
            region = memory.region
            if region.address <= start and start + nbytes <= region.address + region.nbytes:
                return memory
    return None


class Reference(NamedTuple):
    """A shared array as it is sent to another node of its job: where it is, not what is in it."""

    job: str
    region: int
    elements: int
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: Any
    writeable: bool


def refer(a: np.ndarray) -> Reference:
    """A reference to a shared array or a view of one; the array must be held until the reference was resolved."""
    memory = _memory_of(a)
    offset = a.__array_interface__["data"][0] - memory.region.address
    return Reference(
        job_name(), memory.region.number, memory.elements, offset, a.shape, a.strides, a.dtype, a.flags.writeable
    )


def resolve(reference: Reference) -> np.ndarray:
    """The array that a reference means, on any node of its job.

    Raises
    ------
    SendError
        In a process that is no node of that job, or when the array is gone.
    """
    if not _core.is_running() or reference.job != job_name():
        raise SendError("a shared array was sent to a process that is no node of its job; send a copy: numpy.array(a)")
    with _reviving:
        memory = _held.get(reference.region)
        if memory is None:
            region = _core.revive(reference.region)
            if region is None:
                raise SendError("a shared array was sent that no longer exists; keep it until the receiver has it")
            memory = _held[reference.region] = _Memory(region, reference.elements)
    a = np.ndarray(
        reference.shape, reference.dtype, np.asarray(memory), reference.offset, reference.strides
    )  # type: ignore[call-overload, arg-type]
    a.flags.writeable = reference.writeable
    return _handed_out(a)


def _handed_out(a: np.ndarray) -> np.ndarray:
    """Notes an array that is no view of another one that the program has."""
    memory = _memory_of(a)
    memory.arrays = [known for known in memory.arrays if known() is not None] + [weakref.ref(a)]
    return a


def is_shared(a: Any) -> bool:
    """Whether an array's memory is shared."""
    return isinstance(a, np.ndarray) and _core.is_running() and _core.is_shared(a.__array_interface__["data"][0])


def freeze(a: np.ndarray) -> np.ndarray:
    """Declares that nobody writes to the array any more, which halves the cost of copies. Collective.

    Gives the array itself, now read-only. It is the whole allocation that is frozen, whichever view of it is passed.

    NumPy refuses writes through the array passed, through the one it is a view of, and through views made from these
    afterwards. It does not know of other views that exist already: what is written through them is an error that
    nothing raises, and other nodes may see it or not; the node that wrote says so once on standard error, if it
    notices.
    """
    region = region_of(a)
    agree("freeze", f"array {region.number}")
    _core.barrier()
    _core.freeze(region.address)
    _core.barrier()
    at: Any = a
    while isinstance(at, np.ndarray) and not isinstance(at.base, _Memory):
        at.flags.writeable = False
        at = at.base
    # The base of a view is the memory's own array, and no longer the one that the program has made the view from.
    for known in _memory_of(a).arrays:
        array = known()
        if array is not None:
            array.flags.writeable = False
    return a


def prefetch(view: np.ndarray, write: bool = False) -> np.ndarray:
    """Brings an array's memory to this node, so that a system call can use it; gives the array.

    Parameters
    ----------
    view : ndarray
        A shared array or a view of one.
    write : bool
        Whether the call will write there too.

    Raises
    ------
    ArgumentError
        When it is no shared array, or ``write`` is asked of one that is read-only.
    """
    region_of(view)
    if write and not view.flags.writeable:
        raise ArgumentError(
            "this array is read-only, or frozen: nothing may write there; prefetch it without write=True"
        )
    _touch(view, write)
    return view


def _touch(view: np.ndarray, write: bool) -> None:
    """Touches the pages of a view: in one go, unless whole pages lie between its rows."""
    if view.size == 0:
        return
    start, nbytes = _extent(view)
    apart = [i for i in range(view.ndim) if view.shape[i] > 1 and abs(view.strides[i]) > PAGE_BYTES]
    if nbytes < 2 * view.nbytes or not apart:
        _core.prefetch(start, nbytes, write)
        return
    axis = max(apart, key=lambda i: abs(view.strides[i]))
    rows = np.moveaxis(view, axis, 0)
    for i in range(len(rows)):
        _touch(rows[i : i + 1], write)


def fetch_add(a: np.ndarray, index: Any, value: Any = 1) -> Any:
    """Adds to one element, atomically among all nodes and threads that use this function; gives what it was before.

    It takes a lock that belongs to the element, so it costs what a lock costs: a few microseconds when nobody else
    wants it, a message or two when it comes from another node.

    Parameters
    ----------
    a : ndarray
        A shared array or a view of one.
    index : int or tuple of int
        One whole number for each dimension.
    value : number
        What to add.

    Raises
    ------
    ArgumentError
        When ``index`` is anything else (a list, a slice, a truth value), ``a`` is no shared array, or ``value`` no
        number that can be added to its elements without another type.
    """
    region_of(a)
    element = _element(a, index)
    _values.refuse_more(value)
    if not a.flags.writeable:
        raise ArgumentError("this array is read-only, or frozen: nothing can be added to it")
    lock = hashed(f"element at {element.__array_interface__['data'][0]}")
    _core.lock(lock)
    try:
        before = element[()]
        _add(element, value)
        return before
    finally:
        _core.unlock(lock)


def _add(element: np.ndarray, value: Any) -> None:
    # A truth value is a fine thing to test and set.
    casting: Any = "unsafe" if element.dtype.kind == "b" else "same_kind"
    try:
        np.add(element, value, out=element, casting=casting)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"{_words.of(value)} cannot be added to an element of type {element.dtype}: {error}"
        ) from None


def _element(a: np.ndarray, index: Any) -> np.ndarray:
    """One element as a view of no dimensions. All else that NumPy takes for an index gives a copy, or several
    elements."""
    index = index if isinstance(index, tuple) else (index,)
    try:
        numbers = tuple(map(whole, index))
    except TypeError:
        numbers = ()
    if len(index) != a.ndim or len(numbers) != a.ndim:
        raise ArgumentError(
            f"{index} names no single element of an array of {a.ndim} dimensions; use a whole number for each"
        )
    return a[numbers + (...,)]
