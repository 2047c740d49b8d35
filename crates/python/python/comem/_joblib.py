"""A backend for joblib: tasks run on the nodes of the open cluster, with shared arrays by reference."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Optional

NAME = "comem"


def register_joblib() -> None:
    """Makes the backend ``"comem"`` known to joblib, and so to scikit-learn.

    Between ``with joblib.parallel_backend("comem"):`` and its end, tasks of ``joblib.Parallel`` run on the nodes of the
    :class:`comem.Cluster` that is open. Shared arrays go to them by reference; what tasks write there, the caller sees
    when ``Parallel`` returns.

    Raises
    ------
    ImportError
        When joblib is not installed.

    Examples
    --------
    >>> comem.register_joblib()
    >>> with comem.Cluster(4) as c, joblib.parallel_backend("comem"):
    ...     x = c.array(table)
    ...     sums = joblib.Parallel()(joblib.delayed(np.sum)(x[:, i]) for i in range(x.shape[1]))
    """
    import joblib

    joblib.register_parallel_backend(NAME, _backend())


class Future:
    """The result of a task, once there is one."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._good = False
        self._result: Any = None

    def set(self, good: bool, result: Any) -> None:
        """The task has come to this."""
        self._good, self._result = good, result
        self._done.set()

    def get(self, timeout: Optional[float] = None) -> Any:
        """Waits for it."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"a task was not done within {timeout} s")
        if not self._good:
            raise self._result
        return self._result


def _call(task: Callable[[], Any]) -> Any:
    return task()


def _backend() -> Any:
    from joblib._parallel_backends import SequentialBackend
    from joblib.parallel import ParallelBackendBase

    from ._cluster import current
    from ._errors import ThreadError
    from ._launch import LIMITS

    class ComemBackend(ParallelBackendBase):  # type: ignore[misc]
        """Hands joblib's tasks to the nodes of a cluster."""

        supports_retrieve_callback = True
        supports_sharedmem = False
        default_n_jobs = -1

        def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 has no meaning")
            nodes = current().size
            if n_jobs is None or n_jobs < 0:
                return max(1, nodes + 1 + (n_jobs if n_jobs is not None else -1))
            return n_jobs

        def start_call(self) -> None:
            self._time = contextlib.ExitStack()
            self._tasks = self._time.enter_context(current()._serving(_call))
            self._ends = False
            self._more = threading.Semaphore(0)
            self._here = threading.Thread(target=self._work_here, name="comem-joblib", daemon=True)
            try:
                self._here.start()
            except RuntimeError as error:
                self._time.close()
                raise ThreadError(f"this node cannot do its part of the tasks: {error}; {LIMITS}") from error

        def _work_here(self) -> None:
            """The caller's node does its part; its main thread is joblib's."""
            while True:
                self._more.acquire()
                if self._ends:
                    return
                work = self._tasks.take()
                if work is not None:
                    # SystemExit too is the caller's, who waits for an answer: here it would end this thread alone.
                    self._tasks.do(*work, BaseException)

        def stop_call(self) -> None:
            self._ends = True
            self._more.release()
            self._here.join()
            self._time.close()

        def submit(self, func: Callable[[], Any], callback: Optional[Callable[[Any], None]] = None) -> Future:
            future = Future()

            def then(good: bool, results: Any) -> None:
                future.set(good, results[0] if good else results)
                if callback is not None:
                    callback(future)

            self._tasks.submit([func], then)
            self._more.release()
            return future

        apply_async = submit

        def retrieve_result_callback(self, out: Future) -> Any:
            return out.get()

        def get_nested_backend(self) -> Any:
            return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    return ComemBackend
