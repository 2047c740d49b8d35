"""Locks and their kin: shared by all nodes under one name, without being created.

A lock makes what its last holder wrote visible to the next. Names are strings, or numbers as in the C interface.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
import threading
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Type, Union

import numpy as np

from . import _core
from ._errors import ArgumentError, MisuseError
from ._job import together

Name = Union[str, int]


def whole(x: Any) -> int:
    """A whole number of any kind, as Python's own; a truth value is none, though older versions of NumPy take theirs
    for one."""
    if isinstance(x, (bool, np.bool_)):
        raise TypeError(f"{x} is a truth value")
    return operator.index(x)


def at_least(least: int, x: Any) -> bool:
    """Whether this is a whole number of any kind, and no less."""
    try:
        return whole(x) >= least
    except TypeError:
        return False


def hashed(name: str) -> int:
    """A number of 62 bits for a name."""
    return 1 << 62 | int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 2


def times(n: Any) -> range:
    """So many times; none at all for zero.

    Raises
    ------
    ArgumentError
        When it is no whole number from zero on.
    """
    if not at_least(0, n):
        raise ArgumentError(f"{n!r} times cannot be; give a whole number from zero on")
    return range(whole(n))


#: What sentences call locks and their kin, by number.
_names: Dict[int, str] = {}


def renewed() -> None:
    """This process has parted with its job; locks that it has made are those of the next one."""
    for number, name in _names.items():
        _core.remember(number, name)


def number_of(name: Name) -> int:
    """The number under which the runtime knows a name: its own if it is one, else a hash of 62 bits."""
    if isinstance(name, str):
        number = hashed(name)
        _names[number] = repr(name)
        _core.remember(number, _names[number])
        return number
    try:
        number = whole(name)
    except TypeError:
        number = -1
    if 0 <= number < 1 << 62:
        return number
    raise ArgumentError(f"{name!r} names nothing: use a string, or a number from 0 to 2**62 - 1")


class _Held(threading.local):
    """The locks that the calling thread holds, in the order in which it took them."""

    def __init__(self) -> None:
        self.locks: List[Lock] = []


_held = _Held()


@contextlib.contextmanager
def nothing_held_after() -> Iterator[None]:
    """A function's time, at whose end the calling thread lets go what locks it has taken and kept.

    Raises
    ------
    MisuseError
        When there were any and the function has not failed anyway: whoever wants them next would wait for ever.
    """
    before = len(_held.locks)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            _let_go(before)
        raise
    if kept := _let_go(before):
        raise MisuseError(
            f"the function ended with {', '.join(map(repr, kept))} held; release it, best by a with statement"
        )


def _let_go(before: int) -> List[Lock]:
    """Releases what the calling thread has taken since it held so many locks; gives it."""
    kept = _held.locks[before:]
    for lock in reversed(kept):
        lock.release()
    return kept


class Lock:
    """A lock that one thread of all nodes holds at a time; not reentrant.

    Parameters
    ----------
    name : str or int
        Locks of one name are one lock, on every node.

    Examples
    --------
    >>> with comem.Lock("best"):
    ...     if mine < best[0]:
    ...         best[0] = mine
    """

    def __init__(self, name: Name) -> None:
        self.name = name
        self._number = number_of(name)

    def acquire(self, blocking: bool = True) -> bool:
        """Waits for the lock; other Python threads run meanwhile. Gives True, as ``threading.Lock`` does.

        With ``blocking=False`` it waits for no thread, and tells whether it took the lock. It did not where a thread
        holds the lock, or the lock lies at another node. From there it is sent for, so that a later call finds it.
        There is no ``timeout``.
        """
        if not blocking:
            if not _core.try_lock(self._number):
                return False
        else:
            _core.lock(self._number)
        _held.locks.append(self)
        return True

    def release(self) -> None:
        """Lets the lock go.

        Raises
        ------
        MisuseError
            When the calling thread does not hold it.
        """
        _core.unlock(self._number)
        _held.locks[:] = (lock for lock in _held.locks if lock._number != self._number)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"comem.Lock({self.name!r})"


class Condition:
    """A condition variable: threads wait until another one says that something has changed.

    Parameters
    ----------
    name : str or int
        Condition variables of one name are one, on every node.
    lock : Lock, optional
        The lock that protects what is waited for; without one, the lock of the same name.

    Raises
    ------
    TypeError
        When ``lock`` is a lock of another kind, which other nodes know nothing of.
    """

    def __init__(self, name: Name, lock: Optional[Lock] = None) -> None:
        if not isinstance(lock, (Lock, type(None))):
            raise TypeError(
                f"{lock!r} is no comem.Lock, which alone is a lock of all nodes; leave it out, or give a comem.Lock"
            )
        self.name = name
        self.lock = Lock(name) if lock is None else lock
        self._number = number_of(name)

    def wait(self) -> None:
        """Lets the lock go, waits to be notified, and takes the lock again. Check in a loop what you wait for."""
        _core.cond_wait(self._number, self.lock._number)

    def wait_for(self, predicate: Callable[[], object]) -> object:
        """Waits until ``predicate()`` is true; gives what it gave."""
        while not (result := predicate()):
            self.wait()
        return result

    def notify(self, n: int = 1) -> None:
        """Wakes ``n`` threads, those first that have waited longest; an ArgumentError, which is a ValueError, if that
        is below zero."""
        for _ in times(n):
            _core.cond_notify(self._number, False)

    def notify_all(self) -> None:
        """Wakes all threads that wait."""
        _core.cond_notify(self._number, True)

    def __enter__(self) -> Condition:
        self.lock.acquire()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]
    ) -> None:
        self.lock.release()

    def __repr__(self) -> str:
        return f"comem.Condition({self.name!r})"


class Semaphore:
    """Counts from zero: :meth:`release` adds one, :meth:`acquire` takes one, first come first served.

    Parameters
    ----------
    name : str or int
        Semaphores of one name are one, on every node.
    """

    def __init__(self, name: Name) -> None:
        self.name = name
        self._number = number_of(name)

    def acquire(self, blocking: bool = True) -> bool:
        """Takes one, once there is one; with ``blocking=False`` tells whether there was one just now."""
        if not blocking:
            return _core.try_sem_wait(self._number)
        _core.sem_wait(self._number)
        return True

    def release(self, n: int = 1) -> None:
        """Adds ``n``; an ArgumentError, which is a ValueError, if that is below zero."""
        for _ in times(n):
            _core.sem_post(self._number)

    def __enter__(self) -> Semaphore:
        self.acquire()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"comem.Semaphore({self.name!r})"


class RWLock:
    """A lock for many readers or one writer.

    Parameters
    ----------
    name : str or int
        Locks of one name are one lock, on every node.
    """

    def __init__(self, name: Name) -> None:
        self.name = name
        self._number = number_of(name)

    @contextlib.contextmanager
    def read(self) -> Iterator[RWLock]:
        """Holds the lock together with other readers."""
        _core.rw_lock(self._number, False)
        try:
            yield self
        finally:
            _core.rw_unlock(self._number)

    @contextlib.contextmanager
    def write(self) -> Iterator[RWLock]:
        """Holds the lock alone."""
        _core.rw_lock(self._number, True)
        try:
            yield self
        finally:
            _core.rw_unlock(self._number)

    def __repr__(self) -> str:
        return f"comem.RWLock({self.name!r})"


def barrier() -> None:
    """Waits until every node has come here; what anybody wrote before it, everybody reads after it.

    Raises
    ------
    MismatchError
        When another node makes a different collective call.
    NodeLost
        When a node ended.
    """
    together()
    _core.barrier()
