"""Ctrl-C in a process with workers: it must not come between what all of them are told.

Only the main thread gets it, and only handlers that Python has set are replaced.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType
from typing import Any, Callable, Iterator, List, Optional

from . import _core
from ._errors import NodeLost, Stopped

Handler = Callable[[int, Optional[FrameType]], Any]


@contextlib.contextmanager
def _handled_by(make: Callable[[Handler], Handler]) -> Iterator[Optional[Handler]]:
    """Another handler meanwhile, made of the one that stands there; gives that one, or None where there is nothing to
    replace."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield None
        return
    _handle_by(make(before))
    try:
        yield before
    finally:
        _handle_by(before)


def _handle_by(handler: Handler) -> None:
    signal.signal(signal.SIGINT, handler)
    # Python has put its own handler before ours, which ends waits for pages.
    _core.watch_interrupts()


@contextlib.contextmanager
def held_back(give_up: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C waits for the end, since workers would be left with half of what they are told; after a second
    one they are given up."""
    came: List[int] = []

    def make(before: Handler) -> Handler:
        def hold(number: int, frame: Optional[FrameType]) -> None:
            came.append(number)
            if len(came) > 1:
                before(number, frame)

        return hold

    with _handled_by(make) as before:
        try:
            yield
        except KeyboardInterrupt:
            give_up()
            raise
    if came and before is not None:
        before(came[0], None)


@contextlib.contextmanager
def handed_on(hand_on: Callable[[], None]) -> Iterator[List[int]]:
    """While this process waits for others, Ctrl-C is for what still runs there; gives those that came."""
    came: List[int] = []

    def make(before: Handler) -> Handler:
        def note(number: int, frame: Optional[FrameType]) -> None:
            came.append(number)
            hand_on()

        return note

    with _handled_by(make):
        yield came


def behind(error: BaseException) -> BaseException:
    """The Ctrl-C that an error came after, which ended the job while something was to be tidied up; else the error
    itself."""
    at: Optional[BaseException] = error if isinstance(error, (NodeLost, Stopped)) else None
    while at is not None and not isinstance(at, KeyboardInterrupt):
        at = at.__context__
    return at or error


@contextlib.contextmanager
def put_off(hand_on: Callable[[], object]) -> Iterator[None]:
    """The first Ctrl-C within a call that all nodes make together is handed on, and raised when that call has come to
    an end.

    It ends because another node, which was interrupted while it computed, leaves. A second Ctrl-C ends the wait, and
    the job.
    """
    _core.put_off_interrupts(hand_on)
    try:
        yield
    except Exception as error:  # noqa: BLE001 - what came of the interruption, mostly
        if _core.put_off_interrupts(None):
            raise KeyboardInterrupt from error
        raise
    finally:
        late = _core.put_off_interrupts(None)
    if late:
        raise KeyboardInterrupt
