"""Handing out work: each node that is free gets something, and one thing more lest it wait for the next."""

from __future__ import annotations

import functools
import queue
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from . import _wire
from ._errors import ArgumentError
from ._failures import Failures
from ._interrupts import held_back
from ._launch import Team
from ._sync import nothing_held_after

#: Work of up to so many bytes is sent before it is asked for. A pipe takes that at once, so that nobody waits for a
#: reader.
AHEAD_BYTES = 32 << 10


def _packed(items: List[Any]) -> Tuple[bytes, Optional[ArgumentError]]:
    try:
        return _wire.dumps(items), None
    except ArgumentError as error:
        return b"", error


class Tasks:
    """Hands out what there is to do to nodes that are free."""

    def __init__(self, team: Team, function: Callable[[Any], Any]) -> None:
        self._team = team
        self._function = function
        self.failures = Failures()
        self._lock = threading.Lock()
        self._changed: queue.SimpleQueue[None] = queue.SimpleQueue()
        #: Tasks of each node that are not answered yet.
        self._under_way: Dict[int, List[int]] = {worker.node: [] for worker in team.workers}
        self._waiting: List[Tuple[Any, Callable[[bool, Any], None]]] = []

    def submit(self, items: List[Any], then: Callable[[bool, Any], None]) -> None:
        """Calls the function for some items, on some node, and then ``then`` with its results or with its exception, in
        some thread."""
        with self._lock:
            self._waiting.append((items, then))
        self._hand_out()

    def take(self) -> Optional[Tuple[List[Any], Callable[[bool, Any], None]]]:
        """Something to do for the calling thread."""
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    def do(self, items: List[Any], then: Callable[[bool, Any], None], caught: Type[BaseException] = Exception) -> None:
        """Does it in the calling thread, which goes on where the function raises what is ``caught``."""
        results = []
        try:
            with nothing_held_after():
                for item in items:
                    self._team.check()
                    results.append(self._function(item))
        except caught as error:
            self.failures.note(0, error)
            then(False, error)
        else:
            then(True, results)

    def _hand_out(self) -> None:
        """Gives every free node something; and one thing more to those that are at work, lest they wait for us."""
        with held_back(self._team.give_up_halfway):
            for depth in (0, 1):
                for node, under_way in self._under_way.items():
                    while len(under_way) <= depth and self._send(node, depth):
                        pass

    def _send(self, node: int, depth: int) -> bool:
        with self._lock:
            under_way = self._under_way[node]
            if not self._waiting or len(under_way) > depth:
                return False
            items, then = self._waiting[0]
            blob, refused = _packed(items)
            if depth and len(blob) > AHEAD_BYTES:
                return False
            self._waiting.pop(0)
            if refused is None:
                task = self._team.expect(lambda *answer: self._answered(task, then, *answer))
                under_way.append(task)
        if refused is not None:
            then(False, refused)
        else:
            self._team.tell(node, "task", task, blob)
            if self._team.lost is not None:
                self._answered(task, then, node, False, b"")
        return True

    def _answered(self, task: int, then: Callable[[bool, Any], None], node: int, good: bool, data: bytes) -> None:
        # Once: who sent it and who hears the workers may both find that there will be no answer.
        if not self._team.forget(task):
            return
        with self._lock:
            for tasks in self._under_way.values():
                if task in tasks:
                    tasks.remove(task)
        if self._team.lost is not None:
            then(False, self._team.lost)
            while (work := self.take()) is not None:
                work[1](False, self._team.lost)
        else:
            if not good:
                self.failures.note(node, data)
            try:
                then(good, _wire.loads(data) if good else _wire.raised(data))
            except Exception as error:  # noqa: BLE001 - a result that cannot be made again here
                then(False, error)
            self._hand_out()
        self._changed.put(None)

    def map(self, chunks: List[List[Any]], bar: Any) -> List[Any]:
        """The function's results for all chunks, in order; the calling thread does its part."""
        parts: List[Any] = [None] * len(chunks)
        failed: Dict[int, BaseException] = {}
        left, done = len(chunks), 0

        def then(index: int, good: bool, result: Any) -> None:
            nonlocal left, done
            unbegun = 0
            if not good:
                with self._lock:
                    unbegun = len(self._waiting)
                    self._waiting.clear()
            with counting:
                left -= 1 + unbegun
                if good:
                    parts[index] = result
                    done += len(chunks[index])
                else:
                    failed[index] = result
            self._changed.put(None)

        counting = threading.Lock()
        self._waiting += [(chunk, functools.partial(then, index)) for index, chunk in enumerate(chunks)]
        self._hand_out()
        while left > 0:
            work = self.take()
            if work is not None:
                self.do(*work)
            else:
                self._changed.get()
            bar(done)
        self._team.check()
        if failed:
            raise failed[min(failed)]
        bar(done)
        return parts

    def settle(self, error: Optional[BaseException]) -> None:
        """Waits until nobody is at work any more."""
        with self._lock:
            self._waiting.clear()
        if error is not None:
            # What lies with them already is not begun any more.
            self._team.tell_all("stop")
        if isinstance(error, KeyboardInterrupt):
            self._team.interrupt()
        while any(self._under_way.values()):
            self._changed.get()
        self._team.check()

    def close(self) -> None:
        """No more answers are awaited."""
        for tasks in self._under_way.values():
            for task in list(tasks):
                self._team.forget(task)
