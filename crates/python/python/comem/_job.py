"""The job: joined at the first use, left when the interpreter ends."""

from __future__ import annotations

import atexit
import json
import sys
import time
from typing import Any, Dict, Optional, Tuple, Type

from . import _chance, _core
from ._errors import Error, FinishedError, MisuseError, NodeLost, Stopped, SystemError  # noqa: A004

#: The status of a node that used Comem in a way that makes no sense, as in ``crates/runtime/src/error.rs``.
USAGE = 2
#: That of a node that lost another.
NODE_LOST = 4
#: Those of nodes that end with an error of another class.
STATUSES: Dict[Type[Error], int] = {NodeLost: NODE_LOST, Stopped: 5, SystemError: 6}

_place: tuple[int, int, int] | None = None
_failed = False
_name = ""


def place() -> tuple[int, int, int]:
    """This node's number, how many nodes there are, how many threads of each take part. Joins the job if need be."""
    global _place
    if _place is None:
        _place = _core.place()
        _watch_for_failure()
        if _place[0] == 0 and _place[1] > 1 and not _of_cluster:
            _chance.say_if_nodes_differ()
    return _place


def rank() -> int:
    """This node's number, from zero."""
    return place()[0]


def size() -> int:
    """How many nodes the job has."""
    return place()[1]


def job_name() -> str:
    """What tells this job from others."""
    global _name
    if not _name:
        place()
        _name = _core.job_name()
    return _name


def start() -> None:
    """Joins the job now; otherwise the first use does."""
    _core.start()
    place()


def finish() -> None:
    """Leaves the job, once every node has come as far.

    Called when the interpreter ends, so a program need not. Collective; nothing that waits or allocates may follow it.
    """
    together()
    if _of_cluster:
        raise MisuseError("the nodes of a comem.Cluster stay in its job until the interpreter ends; use Cluster.close")
    _core.finish()


#: The job is a cluster's: between two functions that it runs its nodes wait for orders.
_of_cluster = False


def belongs_to_cluster() -> None:
    """From now on this process is a node of a cluster."""
    global _of_cluster
    _of_cluster = True


#: What is raised by calls that all nodes make together, where this one would make them alone: an exception's class and
#: sentence.
_outside: Optional[Tuple[Type[Exception], str]] = None

#: The reason where nodes are at different items of a map.
AT_ITEMS = (
    MisuseError,
    "the nodes are at different items of a map or at different tasks, and cannot make this call together: use "
    "Cluster.run",
)


def outside(reason: Optional[Tuple[Type[Exception], str]]) -> None:
    """From now on calls that all nodes make together fail for this reason, or not any more."""
    global _outside
    _outside = reason


def together() -> None:
    """Raises what keeps this node from a call that all make together."""
    if _outside is not None:
        raise _outside[0](_outside[1])


def still_open() -> None:
    """Raises an exception when the cluster that shared arrays belong to is closed."""
    if _outside is not None and issubclass(_outside[0], FinishedError):
        raise _outside[0](_outside[1])


def stats() -> Dict[str, Any]:
    """This node's counters up to now.

    Returns
    -------
    dict
        As in the file that ``comem run --stats`` writes: messages, bytes, page fetches, times in microseconds, and
        more.
    """
    counted: Dict[str, Any] = json.loads(_core.stats())
    time_us = counted["time_us"]
    idle = min(time_us["compute"], _idle_ns // 1000)
    time_us["compute"] -= idle
    time_us["idle"] += idle
    return counted


#: How long this node had nothing to do, between two calls of a cluster's; and since when it has, if it has not.
_idle_ns = 0
_idle_since: Optional[int] = None


def idle(begins: bool) -> None:
    """From now on this node has nothing to do, or something again: what it does not do is no computing."""
    global _idle_ns, _idle_since
    now = time.monotonic_ns()
    if _idle_since is not None:
        _idle_ns += now - _idle_since
    _idle_since = now if begins else None


def _watch_for_failure() -> None:
    before = sys.excepthook

    def hook(kind, error, traceback):  # type: ignore[no-untyped-def]
        global _failed
        _failed = True
        before(kind, error, traceback)

    sys.excepthook = hook


def renewed() -> None:
    """This process is no node any more, and may join another job."""
    global _place, _name, _of_cluster, _outside, _idle_ns, _idle_since
    _place, _name, _of_cluster, _outside, _idle_ns, _idle_since = None, "", False, None, 0, None


@atexit.register
def _leave() -> None:
    # A node that ends by an exception does not wait for the others: they are told that it ended.
    if _failed:
        return
    if _has_lost_a_node():
        # The program need not have heard of it, and whoever started the job is to know why it does not end well.
        _say(NodeLost())
    elif _core.is_running():
        try:
            _core.finish()
        except Error as error:
            # The traceback would lead here.
            _say(error)
            if not _of_cluster:
                _core.end_with(STATUSES.get(type(error), USAGE))
            return
    if _has_lost_a_node():
        # Though the program came to its end.
        _core.end_with(NODE_LOST)


def _has_lost_a_node() -> bool:
    """Whether the job is over because a node was lost. A cluster tells its program, and its nodes have nothing to
    add."""
    words = _core.last_words()
    return words is not None and words[1] is not None and not _of_cluster


def _say(error: Error) -> None:
    sys.stdout.flush()
    print(f"comem: {type(error).__name__}: {error}", file=sys.stderr)
