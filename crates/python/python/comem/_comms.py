"""Nodes in processes of another system, such as Dask's workers and Ray's actors, and what stands for their shared
arrays in the process that directs them."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from . import _arrays, _guest, _job, _sync
from ._errors import FinishedError


class _Node:
    """What a process has of a job: the thread that makes its collective calls, and its shared arrays."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="comem-calls")
        self.arrays: Dict[int, Any] = {}


#: The jobs that this process is a node of, by their names.
_nodes: Dict[str, _Node] = {}


class Shared:
    """A shared array, as its maker sees it. A function on a node that gets it as an argument gets the array itself."""

    def __init__(self, job: str, number: int, shape: Tuple[int, ...], dtype: str) -> None:
        self._job, self._number = job, number
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _found, (self._job, self._number, self.shape, self.dtype.str)

    def __repr__(self) -> str:
        return f"comem.Shared(shape={self.shape}, dtype={self.dtype})"


def _found(job: str, number: int, shape: Tuple[int, ...], dtype: str) -> Any:
    """The array on a node of its job, and elsewhere what stands for it: whoever hands it on may look at it."""
    node = _nodes.get(job)
    if node is None:
        return Shared(job, number, shape, dtype)
    if number not in node.arrays:
        raise FinishedError("this shared array was freed (Comms.free); make another")
    return node.arrays[number]


def call(job: str, function: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:
    """Calls a function in the job's own thread, so that the process goes on with its other work meanwhile."""
    if job not in _nodes:
        raise FinishedError("this process is no node of the job any more; make other Comms")
    return _nodes[job].thread.submit(function, *args, **named)


def join(job: str, id: str, rank: int, processes: int, settings: Dict[str, Any]) -> None:
    """Makes this process a node. Called in any thread but the job's own."""
    _nodes[job] = _Node()
    try:
        call(job, _guest.init, unique_id=id, rank=rank, processes=processes, **settings).result()
    except BaseException:
        _nodes.pop(job).thread.shutdown(wait=False)
        raise


def allocate(job: str, number: int, make: str, args: Tuple[Any, ...], named: Dict[str, Any]) -> Tuple[Any, str]:
    """Makes an array on all nodes, in the job's own thread."""
    array = getattr(_arrays, make)(*args, **named)
    _nodes[job].arrays[number] = array
    return array.shape, array.dtype.str


def free(job: str, number: int) -> None:
    """Lets go of an array, in the job's own thread."""
    _nodes[job].arrays.pop(number, None)


def leave(job: str) -> None:
    """Ends the job, in its own thread."""
    node = _nodes.pop(job)
    node.arrays.clear()
    _job.finish()
    node.thread.shutdown(wait=False)


class Comms:
    """What directs the nodes of a job from outside; it knows how to call a function on all of them at once."""

    def __init__(self, processes: int, settings: Dict[str, Any]) -> None:
        self._job, self._arrays, self._closed = uuid.uuid4().hex, 0, False
        id = self._make_id()
        self._join([(self._job, id, rank, processes, settings) for rank in range(processes)])

    def _make_id(self) -> str:
        """Has the first process make the job's id."""
        raise NotImplementedError

    def _join(self, args: List[Tuple[Any, ...]]) -> None:
        """Calls :func:`join` in every process, with its arguments."""
        raise NotImplementedError

    def _each(self, function: Callable[..., Any], args: Tuple[Any, ...], named: Dict[str, Any]) -> List[Any]:
        """Calls a function in the job's own thread of every process; gives the results by node."""
        raise NotImplementedError

    def _all(self, function: Callable[..., Any], *args: Any, **named: Any) -> List[Any]:
        if self._closed:
            raise FinishedError("these Comms were closed; make others")
        return self._each(function, args, named)

    def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> List[Any]:
        """Calls a function on every node at once; it may make collective calls.

        Returns
        -------
        list
            The results, by node.
        """
        return self._all(function, *args, **named)

    def _make(self, make: str, args: Tuple[Any, ...], named: Dict[str, Any]) -> Shared:
        self._arrays += 1
        shape, dtype = self._all(allocate, self._job, self._arrays, make, args, named)[0]
        return Shared(self._job, self._arrays, shape, dtype)

    def zeros(self, *args: Any, **named: Any) -> Shared:
        """A shared array of zeros on all nodes; as :func:`comem.zeros`."""
        return self._make("zeros", args, named)

    def array(self, *args: Any, **named: Any) -> Shared:
        """A shared array with this process's data; as :func:`comem.array`."""
        return self._make("array", args, named)

    def free(self, shared: Shared) -> None:
        """Lets go of an array on all nodes. What functions still hold of it stays."""
        self._all(free, self._job, shared._number)

    def barrier(self) -> None:
        """What has been written before is seen by all that starts afterwards."""
        self._all(_sync.barrier)

    def close(self) -> None:
        """Ends the job. The processes go on, and may join another."""
        if not self._closed:
            self._all(leave, self._job)
            self._closed = True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        # Where a node is lost, the first error says more than the next.
        try:
            self.close()
        except Exception:
            if error is None:
                raise
