"""Clusters: worker nodes that a notebook or a plain interpreter starts, and is a node with.

A run or a map begins with a barrier and ends with one at which nodes may be that are in the middle of something else
(an exception ended the function on one of them): so the workers see what the caller wrote before, and the caller sees
all that they wrote. Between runs only the caller's thread is at work; workers wait for orders, which costs no processor
time.
"""

from __future__ import annotations

import atexit
import contextlib
import html
import os
import queue
import socket
import threading
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Type

import numpy as np

from . import _arrays, _chance, _core, _job, _renewal, _wire
from ._errors import ArgumentError, FinishedError, MismatchError, MisuseError, NodeLost, Stopped
from ._failures import Failures
from ._interrupts import behind, handed_on, held_back, put_off
from ._launch import Team, places, refuse_second_job
from ._sync import at_least, nothing_held_after
from ._tasks import Tasks

#: Without a chunk size, a map has about so many chunks a node: fewer make the last one late, more cost messages.
CHUNKS_PER_NODE = 16

_team: Optional[Team] = None
_open: Optional[Cluster] = None


def current() -> Cluster:
    """The cluster that is open.

    Raises
    ------
    MisuseError
        When none is.
    """
    if _open is None:
        raise MisuseError("there is no open comem.Cluster; make one first")
    return _open


class Cluster:
    """Worker nodes, started from a notebook or a plain interpreter, which becomes node 0 of their job.

    Parameters
    ----------
    nodes : int, optional
        How many nodes, this process included. Without it, and without ``hosts``, as many as there are processors.
    hosts : sequence of str, optional
        Where the workers are: ``["a:2", "b"]`` puts two on ``a`` and one on ``b``, by ssh (or what COMEM_RSH names).
        ``"localhost"`` is this host, where they are all without ``hosts``.
    engine, backbone, detector, cache, heap : str, optional
        As for ``comem run``.
    rehearse : bool, optional
        As for ``comem run``: on one host, what would run between hosts.
    mtu : int, optional
        As for ``comem run``: packets of at most so many bytes, on all nodes. Without it COMEM_MTU counts, for nodes on
        other hosts too.

    Notes
    -----
    Closing a cluster keeps its workers, idle, until the interpreter ends. The next one of the same size and options
    has them at once, and its arrays are shared again. One of another size or with other options is another job with
    workers of its own: arrays of the earlier one keep their contents, as memory of this process alone. So does one
    after a :class:`comem.NodeLost`; arrays then hold what this process had last.

    Examples
    --------
    >>> with comem.Cluster(4) as c:
    ...     a = c.zeros(1_000_000)
    ...     c.run(lambda a: comem.block(a).fill(comem.rank), a)
    ...     print(a.sum())
    """

    def __init__(
        self,
        nodes: Optional[int] = None,
        hosts: Optional[Sequence[str]] = None,
        *,
        engine: Optional[str] = None,
        backbone: Optional[str] = None,
        detector: Optional[str] = None,
        cache: Optional[str] = None,
        heap: Optional[str] = None,
        mtu: Optional[int] = None,
        rehearse: bool = False,
    ) -> None:
        global _open
        given = dict(engine=engine, backbone=backbone, detector=detector, cache=cache, heap=heap)
        given["mtu"] = os.environ.get("COMEM_MTU") if mtu is None else str(mtu)
        given["rehearse"] = "on" if rehearse else None
        options = {"COMEM_" + name.upper(): str(value) for name, value in given.items() if value is not None}
        self._closed = True
        where = places(nodes, hosts)
        if _open is not None:
            raise MisuseError("another comem.Cluster is open; close it first: comem.Cluster.current().close()")
        self._team = _the_team(where, options)
        self._busy = threading.Lock()
        self._handed_on = False
        self._closed = False
        _open = self
        _job.outside(OUTSIDE)
        _job.idle(True)

    @staticmethod
    def current() -> Optional[Cluster]:
        """The cluster that is open, or None: as when a notebook has lost the name of its own."""
        return _open

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Cluster cannot be sent to its workers; use comem.size and comem.rank there, and the functions of comem"
        )

    @property
    def size(self) -> int:
        """How many nodes there are, the caller's included."""
        return self._team.size

    def __repr__(self) -> str:
        return f"<comem.Cluster of {self.size} nodes{', closed' if self._closed else ''}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the nodes with their hosts and processes, and options that were given."""
        here = socket.gethostname()
        rows = [(0, here, os.getpid(), "this process")]
        for worker in self._team.workers:
            state = "ended" if worker.gone else "idle" if self._closed else "worker"
            rows.append((worker.node, worker.host or here, worker.pid, state))
        title = f"comem.Cluster of {self.size} node{'' if self.size == 1 else 's'}{', closed' if self._closed else ''}"
        given = sorted(self._team.options.items())
        options = ", ".join(f"{name[len('COMEM_') :].lower()}={value}" for name, value in given)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
        head = "".join(f"<th>{name}</th>" for name in ("node", "host", "pid", ""))
        return (
            f"<div><b>{title}</b>{' (' + html.escape(options) + ')' if options else ''}"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the workers, which stay idle for the next cluster. Arrays stay readable as plain memory."""
        global _open
        if self._closed:
            return
        self._closed = True
        if _open is self:
            _open = None
            _job.outside(CLOSED)

    # Work

    def run(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> List[Any]:
        """Calls a function on every node, the caller's included; they may use everything that a script may, such as
        barriers.

        Parameters
        ----------
        function : callable
            Sent by cloudpickle if it is installed, else by pickle.
        *arguments, **named
            Shared arrays, and views of them, go by reference; everything else as a copy.

        Returns
        -------
        list
            What it returned, by node.

        Raises
        ------
        NodeLost
            When a worker ended.
        Exception
            What it raised on some node; the cause is the traceback there.
        """
        self._check()
        self._warn_of(function)
        blob = _wire.dumps((function, arguments, named))
        return self._run(blob, lambda: function(*arguments, **named))

    def _warn_of(self, function: Callable[..., Any]) -> None:
        if self.size > 1:
            _chance.warn_of(function)

    def _run(self, blob: bytes, here: Callable[[], Any]) -> List[Any]:
        """All nodes do something together: the workers what ``blob`` says, this one ``here``."""
        answers: queue.SimpleQueue[Tuple[int, bool, bytes]] = queue.SimpleQueue()

        def answered(node: int, good: bool, data: bytes) -> None:
            if data and not good:
                failures.note(node, data)
            answers.put((node, good, data))

        with self._turn() as team, Failures() as failures:
            task = team.expect(answered)
            mine: Any = None
            error: Optional[BaseException] = None
            try:
                try:
                    self._begin("run", task, blob)
                    with put_off(self._interrupt), nothing_held_after():
                        mine = here()
                except BaseException as raised:  # noqa: BLE001 - raised again, when the others have come to the end
                    error = behind(raised)
                    failures.note(0, error)
                self._leave(error)
                heard: Dict[int, Tuple[bool, bytes]] = {}
                while len(heard) < self.size - 1:
                    node, good, data = answers.get()
                    team.check()
                    heard[node] = (good, data)
            finally:
                team.forget(task)
        return self._sum_up(mine, error, heard)

    def _sum_up(self, mine: Any, error: Optional[BaseException], heard: Dict[int, Tuple[bool, bytes]]) -> List[Any]:
        errors = [] if error is None else [error]
        errors += [_wire.raised(data) for _, (good, data) in sorted(heard.items()) if not good]
        # A call that failed because another node had left by an exception is not the cause.
        causes = [e for e in errors if not isinstance(e, MismatchError)]
        if errors:
            raise (causes or errors)[0]
        return [mine, *(_wire.loads(heard[node][1]) for node in range(1, self.size))]

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        chunksize: Optional[int] = None,
        progress: bool = False,
    ) -> List[Any]:
        """Calls a function for every item, on whichever node is free, the caller's included.

        Parameters
        ----------
        function : callable
            Of one item. It cannot use barriers and other collective calls, since nodes are at different items.
        items : iterable
            Taken as a list first. Shared arrays in them go by reference.
        chunksize : int, optional
            How many items a node gets at a time.
        progress : bool
            Shows a progress bar, where tqdm is installed.

        Returns
        -------
        list
            The results, in the order of the items.

        Raises
        ------
        NodeLost
            When a worker ended.
        Exception
            What the function raised, for the first of the items that it failed for; others may not have been tried.
        """
        self._check()
        self._warn_of(function)
        items = list(items)
        if chunksize is None:
            chunksize = max(1, len(items) // (CHUNKS_PER_NODE * self.size))
        if not at_least(1, chunksize):
            raise ArgumentError(f"chunks of {chunksize!r} items cannot be; give a whole number from 1 on")
        chunks = [items[at : at + chunksize] for at in range(0, len(items), chunksize)]
        with self._serving(function) as tasks, _bar(len(items), progress) as bar:
            return [result for part in tasks.map(chunks, bar) for result in part]

    @contextlib.contextmanager
    def _serving(self, function: Callable[[Any], Any]) -> Iterator[Tasks]:
        """A time in which nodes do what they are handed."""
        blob = _wire.dumps(function)
        with self._turn() as team:
            tasks = Tasks(team, function)
            error: Optional[BaseException] = None
            with tasks.failures:
                try:
                    try:
                        self._begin("serve", blob)
                        _job.outside(_job.AT_ITEMS)
                        yield tasks
                    except BaseException as raised:  # noqa: BLE001 - raised again below
                        error = behind(raised)
                    with handed_on(team.interrupt) as interrupts:
                        tasks.settle(error)
                        team.tell_all("leave")
                        self._leave(error)
                    if interrupts and error is None:
                        error = KeyboardInterrupt()
                finally:
                    tasks.close()
        if error is not None:
            raise error

    def _check(self) -> None:
        if self._closed:
            raise FinishedError("this comem.Cluster is closed; make a new one, which has its workers at once")
        self._team.check()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Team]:
        """One run or map at a time, of a cluster that is open and whole."""
        self._check()
        if not self._busy.acquire(blocking=False):
            raise MisuseError(
                "this comem.Cluster is at work for another thread, or for a function that it runs; one after the other"
            )
        _job.outside(None)
        _job.idle(False)
        _core.interrupts_heard()
        try:
            if self._team.halfway:
                self._team.give_up_halfway()
            self._team.check()
            yield self._team
        except (NodeLost, Stopped) as error:
            # Whoever was lost, the runtime's words say less about it than what is known here.
            self._team.check()
            raise error
        finally:
            _core.interrupts_heard()
            self._team.show_rest()
            _job.idle(True)
            self._busy.release()
            _job.outside(CLOSED if self._closed else OUTSIDE)

    def _begin(self, *order: Any) -> None:
        """All nodes begin something that ends with ``_leave``."""
        self._team.halfway = True
        self._handed_on = False
        with held_back(self._team.give_up_halfway):
            self._team.tell_all(*order)
            if self.size > 1:
                _core.barrier()

    def _interrupt(self) -> None:
        """Hands Ctrl-C on to the functions that the workers of this host run."""
        self._handed_on = True
        self._team.interrupt()

    def _leave(self, error: Optional[BaseException]) -> None:
        """All nodes come to the end of what they began together."""
        if self.size == 1:
            self._team.halfway = False
            return
        if isinstance(error, KeyboardInterrupt):
            if self._team.lost is not None:
                raise error
            # A worker that hears of it again no longer waits for the others.
            if not self._handed_on:
                self._team.interrupt()
        with handed_on(self._team.interrupt) as interrupts:
            try:
                _core.leave()
                self._team.halfway = False
            except MismatchError as mismatch:
                why = f"nodes made different collective calls earlier: {mismatch}; make a new cluster"
                self._team.give_up(Stopped(why))
                raise error or mismatch  # noqa: B904 - what caused it stays
            except (NodeLost, Stopped):
                if not interrupts and not isinstance(error, KeyboardInterrupt):
                    raise
                why = "this cluster was interrupted while nodes waited for one another; make a new one"
                self._team.give_up(Stopped(why))
                raise error or KeyboardInterrupt()  # noqa: B904 - what caused it stays
        if interrupts and error is None:
            raise KeyboardInterrupt

    # Shared arrays

    def _made(self, name: str, /, *arguments: Any, mine: Sequence[Any] = (), **named: Any) -> np.ndarray:
        """Makes an array: its pages live where they are used first, so that what the caller fills moves when others
        touch it."""
        made: np.ndarray = self._together(name, *arguments, mine=mine, **{"home": "first-touch", **named})
        return made

    def _together(self, name: str, /, *arguments: Any, mine: Sequence[Any] = (), **named: Any) -> Any:
        """All nodes call a function of the package; ``mine`` are first arguments that only this one needs."""
        self._check()
        call = getattr(_arrays, name)
        blob = _wire.dumps((_call_quietly, (name, [None] * len(mine), arguments, named), {}))

        def here() -> Any:
            # Workers are in the middle of it: Ctrl-C waits for the end.
            with held_back(self._team.give_up_halfway):
                return call(*mine, *arguments, **named)

        return self._run(blob, here)[0]

    def zeros(self, shape: Any, dtype: Any = float, order: str = "C", **options: Any) -> np.ndarray:
        """A shared array of zeros, as :func:`comem.zeros` makes it; called by the caller alone."""
        return self._made("zeros", shape, dtype, order, **options)

    def empty(self, shape: Any, dtype: Any = float, order: str = "C", **options: Any) -> np.ndarray:
        """A shared array whose contents are not to be relied on, as :func:`comem.empty`."""
        return self._made("empty", shape, dtype, order, **options)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", **options: Any) -> np.ndarray:
        """A shared array full of one value, as :func:`comem.full`."""
        return self._made("full", shape, fill_value, dtype, order, **options)

    def ones(self, shape: Any, dtype: Any = float, order: str = "C", **options: Any) -> np.ndarray:
        """A shared array of ones, as :func:`comem.ones`."""
        return self._made("ones", shape, dtype, order, **options)

    def zeros_like(
        self, a: Any, dtype: Any = None, order: str = "K", *, shape: Any = None, **options: Any
    ) -> np.ndarray:
        """A shared array of zeros like ``a``, as :func:`comem.zeros_like`; the workers need not see ``a``."""
        return self.zeros(*_arrays.like(a, dtype, order, shape), **options)

    def empty_like(
        self, a: Any, dtype: Any = None, order: str = "K", *, shape: Any = None, **options: Any
    ) -> np.ndarray:
        """A shared array with the shape and type of ``a``, as :func:`comem.empty_like`."""
        return self.empty(*_arrays.like(a, dtype, order, shape), **options)

    def ones_like(
        self, a: Any, dtype: Any = None, order: str = "K", *, shape: Any = None, **options: Any
    ) -> np.ndarray:
        """A shared array of ones with the shape and type of ``a``, as :func:`comem.ones_like`."""
        return self.ones(*_arrays.like(a, dtype, order, shape), **options)

    def full_like(
        self, a: Any, fill_value: Any, dtype: Any = None, order: str = "K", *, shape: Any = None, **options: Any
    ) -> np.ndarray:
        """A shared array full of ``fill_value`` with the shape and type of ``a``, as :func:`comem.full_like`."""
        shape, dtype, order = _arrays.like(a, dtype, order, shape)
        return self.full(shape, fill_value, dtype, order, **options)

    def array(self, x: Any, dtype: Any = None, order: str = "C", **options: Any) -> np.ndarray:
        """A shared copy of an array, as :func:`comem.array`."""
        return self._made("array", dtype, order, mine=[x], **options)

    def open_npy(self, path: Any, **options: Any) -> np.ndarray:
        """A shared array with the contents of a ``.npy`` file, as :func:`comem.open_npy`; a relative path is one of the
        caller's."""
        # What is no path, or has no directory, is an error when it is read.
        with contextlib.suppress(TypeError, OSError):
            path = os.path.abspath(path)
        return self._made("open_npy", path, **options)

    def freeze(self, a: np.ndarray) -> np.ndarray:
        """Declares that nobody writes to an array any more, as :func:`comem.freeze`."""
        _arrays.region_of(a)
        frozen: np.ndarray = self._together("freeze", a)
        return frozen

    # What happened

    def stats(self) -> List[Dict[str, Any]]:
        """Every node's counters up to now, as :func:`comem.stats` gives them, by node."""
        answers: queue.SimpleQueue[Tuple[int, bool, bytes]] = queue.SimpleQueue()
        with self._turn() as team:
            task = team.expect(lambda *answer: answers.put(answer))
            try:
                with held_back(team.give_up_halfway):
                    team.tell_all("report", task)
                team.check()
                heard: Dict[int, Tuple[bool, bytes]] = {}
                while len(heard) < self.size - 1:
                    node, good, data = answers.get()
                    team.check()
                    heard[node] = (good, data)
            finally:
                team.forget(task)
            return self._sum_up(_job.stats(), None, heard)

    def plot(self, stats: Optional[Sequence[Dict[str, Any]]] = None) -> Any:
        """Draws where the time went on each node, and who fetched what of which array; needs matplotlib.

        Parameters
        ----------
        stats : list of dict, optional
            What :meth:`stats` gave; without it, as things are now.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it; ``savefig`` writes it to a file.

        Raises
        ------
        ArgumentError
            Without matplotlib.
        """
        from ._plot import figure

        return figure(self.stats() if stats is None else stats)


OUTSIDE = (
    MisuseError,
    "the workers take no part in this: call it within a function that Cluster.run runs (arrays: Cluster.zeros and its "
    "kin)",
)
CLOSED = FinishedError, "the comem.Cluster is closed; make a new one"


def _call_quietly(name: str, first: List[Any], arguments: Any, named: Any) -> None:
    """A worker's part in a call whose result the caller alone wants."""
    getattr(_arrays, name)(*first, *arguments, **named)


@contextlib.contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Shows how many items are done."""
    tqdm: Any = None
    if wanted:
        with contextlib.suppress(ImportError):
            from tqdm.auto import tqdm  # type: ignore[import-untyped,no-redef]
    if tqdm is None:
        yield lambda done: None
        return
    with tqdm(total=total) as bar:
        yield lambda done: bar.update(done - bar.n) and None


def _the_team(hosts: List[str], options: Dict[str, str]) -> Team:
    """The workers of this process: those that it has, if they are the same."""
    global _team
    refuse_second_job()
    if _team is not None:
        _team.check_process()
        if _team.lost is None and (_team.hosts, _team.options) == (hosts, options):
            return _team
        _part_with(_team)
    elif _core.is_running() and _arrays.holds_any():
        raise MisuseError(
            "this process holds shared arrays of a job of one node, which workers know nothing of; make the Cluster "
            "first, or drop the arrays"
        )
    elif _core.is_used():
        # A job of one node, as somebody has asked for comem.size; or one that did not come about.
        if _core.is_running():
            _core.finish()
        _renewal.renew()
    try:
        _job.belongs_to_cluster()
        team = Team(hosts, options)
        if team.size == 1:
            _core.start()
            _job.place()
    except BaseException:
        _job.renewed()
        if _core.is_used():
            _renewal.renew()
        raise
    _wire.refuse_elsewhere()
    atexit.register(team.finish)
    _team = team
    return team


def _part_with(team: Team) -> None:
    """Ends a closed cluster's job, so that this process can have another one.

    Raises
    ------
    NodeLost
        When a worker has ended meanwhile, which arrays may have lost contents with; the next try works.
    """
    global _team
    with held_back(team.give_up_halfway):
        if team.lost is not None and not team.told and _arrays.holds_any():
            team.check()
        if team.lost is None:
            _arrays.bring_all()
            team.finish()
            # Whoever is lost now is not missed.
            with contextlib.suppress(NodeLost, Stopped):
                _core.finish()
        else:
            team.abandon()
        _team = None
        atexit.unregister(team.finish)
        _renewal.renew()
        team.dissolve()
