"""What nodes raised in one call, while others are still at their part of it: they may wait for ever, so it is said
before that."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from types import TracebackType
from typing import Dict, Optional, Type, Union

from . import _wire
from ._errors import MismatchError, NodeLost, Stopped

#: How long others may take to come to the end as well before somebody's exception is said; after that, it is raised.
PATIENCE_S = 0.5

#: What comes of another node's exception, or of the caller's wish.
_CONSEQUENCES = (KeyboardInterrupt, NodeLost, Stopped)


class Failures:
    """What nodes raised in one call; a context manager, for the time of the call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raised: Dict[int, Union[BaseException, bytes]] = {}
        self._timer: Optional[threading.Timer] = None
        self._over = False

    def note(self, node: int, failure: Union[BaseException, bytes]) -> None:
        """A node's part ended with this exception, which is packed if it is another's."""
        with self._lock:
            self._raised.setdefault(node, failure)
            if self._timer is None and not self._over:
                self._timer = threading.Timer(PATIENCE_S, self._say)
                # It touches no shared memory, as the thread that hears the workers.
                self._timer.name, self._timer.daemon = "comem-cluster", True
                # Where no thread can be had, it is raised in the end all the same.
                with contextlib.suppress(RuntimeError):
                    self._timer.start()

    def first(self) -> Optional[BaseException]:
        """The exception that others come from, if there was any."""
        with self._lock:
            packed = sorted(self._raised.items())
        errors = [_unpacked(one) if isinstance(one, bytes) else one for _, one in packed]
        causes = [error for error in errors if not isinstance(error, _CONSEQUENCES)]
        # A call that failed because another node had left by an exception is not the cause.
        return min(causes, key=lambda error: isinstance(error, MismatchError), default=None)

    def _say(self) -> None:
        error = self.first()
        if error is None or self._over:
            return
        if isinstance(error.__cause__, _wire.RemoteTraceback):
            text = str(error.__cause__).strip("\n\"")
        else:
            text = (
                "On node 0:\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
            )
        _wire.show(
            f"comem: a function failed on one node; others are not at its end, and may wait for that node\n{text}",
            sys.stderr,
        )

    def __enter__(self) -> Failures:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]
    ) -> None:
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
        if isinstance(error, _CONSEQUENCES) and (cause := self.first()) is not None:
            _put_behind(error, cause)


def _unpacked(failure: bytes) -> BaseException:
    try:
        return _wire.raised(failure)
    except Exception as error:  # noqa: BLE001 - an exception's own code, which raises another one here
        return error


def _put_behind(error: BaseException, cause: BaseException) -> None:
    """Makes one exception the cause of another, unless that comes from it already."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    if cause not in chain:
        error.__cause__ = cause
