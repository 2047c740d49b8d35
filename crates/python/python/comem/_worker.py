"""A worker node of a :class:`comem.Cluster`, which starts it.

Orders come over a channel: descriptor ``--channel N``, or standard input and output (``--pipe``, over ssh). A thread
reads them, so that the caller never waits for a worker that computes; the main thread carries them out. When the caller
is gone, so is the worker.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _core, _job, _wire
from ._errors import Stopped
from ._interrupts import put_off
from ._sync import nothing_held_after
from ._wire import Channel


def _channel(arguments: List[str]) -> Channel:
    if arguments[0] == "--channel":
        fd = int(arguments[1])
        os.set_inheritable(fd, False)
        return Channel(fd, fd)
    # What the program prints must not get between the messages.
    reads, writes = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return Channel(reads, writes)


def _leave_job(line: str) -> int:
    """The job's secrets as a descriptor, as `comem exec` leaves them."""
    fd = os.memfd_create("comem job")
    os.write(fd, line.encode() + b"\n")
    return fd


def _join(orders: Dict[str, Any]) -> None:
    os.environ.update(orders["environment"])
    os.environ["COMEM_PROGRAM"] = os.path.abspath(_wire.__file__)
    os.environ["COMEM_JOB_FD"] = str(_leave_job(orders["job"]))
    _take_on(orders["path"], orders["directory"], orders["same_host"])
    _job.belongs_to_cluster()
    _core.start()
    _job.place()


def _take_on(path: List[str], directory: str, same_host: bool) -> None:
    """The caller's path for modules and its directory. Another host has modules of its own, behind the caller's."""
    if os.path.isdir(directory):
        os.chdir(directory)
    else:
        # Relative entries would mean wherever a remote shell begins.
        path = [entry for entry in path if os.path.isabs(entry)]
    sys.path[:] = path if same_host else path + [entry for entry in sys.path if entry not in path]


class Worker:
    """A node that does what the caller says."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._orders: queue.SimpleQueue[Tuple[Any, ...]] = queue.SimpleQueue()
        self._at_work = False
        #: What was handed out is not wanted any more.
        self._stopped = False

    def start(self) -> None:
        """Joins the job and works until the caller says that it ends."""
        signal.signal(signal.SIGINT, self._on_interrupt)
        orders = self._channel.receive()[1]
        threading.Thread(target=self._listen, name="comem-orders", daemon=True).start()
        while (more := self._orders.get())[0] != "zero":
            pass
        orders["environment"]["COMEM_ZERO"] = more[1]
        _join(orders)
        self._channel.send("joined", os.getpid(), sys.version_info[:2])
        while (order := self._next())[0] != "end":
            getattr(self, "_" + order[0])(*order[1:])
        _core.finish()

    def _next(self) -> Tuple[Any, ...]:
        """The next order, once there is one."""
        _job.idle(True)
        order = self._orders.get()
        _job.idle(False)
        return order

    def _on_interrupt(self, number: int, frame: Optional[FrameType]) -> None:
        _core.interrupts_heard()
        if self._at_work:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        try:
            while True:
                order = self._channel.receive()
                if order[0] == "stop":
                    self._stopped = True
                else:
                    self._orders.put(order)
        except (EOFError, OSError):
            os._exit(0)

    def _run(self, task: int, blob: bytes) -> None:
        """All nodes call a function together."""
        _core.barrier()
        self._do(task, lambda: _call(*_wire.loads(blob)))
        _core.leave()

    def _serve(self, blob: bytes) -> None:
        """The caller hands out what there is to do, until it says that there is no more."""
        _core.barrier()
        _job.outside(_job.AT_ITEMS)
        self._stopped = False
        function: Any = None
        while (order := self._next())[0] != "leave":
            task, items = order[1:]

            def work(items: bytes = items) -> List[Any]:
                nonlocal function
                if self._stopped:
                    raise Stopped("the caller does not want this any more")
                if function is None:
                    function = _wire.loads(blob)
                return [function(item) for item in _wire.loads(items)]

            self._do(task, work)
        _job.outside(None)
        _core.leave()

    def _do(self, task: int, work: Callable[[], Any]) -> None:
        def interruptible() -> Any:
            # Ctrl-C comes to all workers: those who compute free those who wait for them.
            with put_off(lambda: None):
                self._at_work = True
                try:
                    with nothing_held_after():
                        return work()
                finally:
                    self._at_work = False

        good, result = _wire.attempt(interruptible, _job.rank())
        sys.stdout.flush()
        sys.stderr.flush()
        self._channel.send("done", task, good, result)

    def _report(self, task: int) -> None:
        self._do(task, _job.stats)


def _call(function: Callable[..., Any], arguments: Any, named: Any) -> Any:
    return function(*arguments, **named)


def main() -> None:
    """Runs the worker."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    channel = _channel(sys.argv[1:])
    sys.argv = [""]
    Worker(channel).start()


if __name__ == "__main__":
    main()
