"""NumPy arrays that several machines share.

A shared array is an ordinary ``numpy.ndarray``; its memory is on every node of the job, and Comem moves what is
touched::

    import comem

    a = comem.zeros((1000, 1000), home="block")
    mine = comem.block(a)
    mine += comem.rank
    comem.barrier()
    print(comem.rank, a.sum())

``comem run -n 4 python program.py`` (or ``python -m comem run …``) runs it on four nodes; ``python program.py`` alone
is a correct job of one node.
"""

from __future__ import annotations

from typing import Any, List

from ._arrays import (
    array,
    block,
    empty,
    empty_like,
    fetch_add,
    freeze,
    full,
    full_like,
    is_shared,
    ones,
    ones_like,
    open_npy,
    prefetch,
    zeros,
    zeros_like,
)
from ._cluster import Cluster
from ._collective import allreduce, broadcast, gather, reduce, scatter, split
from ._errors import (
    ArgumentError,
    Error,
    FinishedError,
    ForkError,
    HeapFullError,
    MismatchError,
    MisuseError,
    NodeLost,
    SendError,
    StartError,
    Stopped,
    SystemError,  # noqa: A004
    ThreadError,
)
from ._guest import init, unique_id
from ._job import finish, start, stats
from ._joblib import register_joblib
from ._sync import Condition, Lock, RWLock, Semaphore, barrier

__version__ = "0.1.0"

#: This node's number, from zero.
rank: int
#: How many nodes the job has.
size: int

# Without `rank` and `size`: `from comem import *` would look at them, and join the job.
__all__ = [
    "ArgumentError",
    "Cluster",
    "Condition",
    "Error",
    "FinishedError",
    "ForkError",
    "HeapFullError",
    "Lock",
    "MismatchError",
    "MisuseError",
    "NodeLost",
    "RWLock",
    "Semaphore",
    "SendError",
    "StartError",
    "Stopped",
    "SystemError",
    "ThreadError",
    "allreduce",
    "array",
    "barrier",
    "block",
    "broadcast",
    "empty",
    "empty_like",
    "fetch_add",
    "finish",
    "freeze",
    "full",
    "full_like",
    "gather",
    "init",
    "is_shared",
    "ones",
    "ones_like",
    "open_npy",
    "prefetch",
    "reduce",
    "register_joblib",
    "scatter",
    "split",
    "start",
    "stats",
    "unique_id",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> Any:
    # Who this node is turns out when it joins the job, which the first look at these does.
    if name == "rank":
        from ._job import rank

        return rank()
    if name == "size":
        from ._job import size

        return size()
    raise AttributeError(f"module 'comem' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), "rank", "size"})
