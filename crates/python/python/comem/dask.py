"""Comem on the workers of a Dask cluster: they become the nodes of one job, and tasks find shared arrays by reference.

::

    client = Client(n_workers=4, threads_per_worker=1)
    with comem.dask.Comms(client) as comms:
        a = comms.zeros(1_000_000)
        wait([client.submit(fill, a, n, workers=[w]) for n, w in enumerate(comms.workers)])
        comms.barrier()

In the manner of raft-dask: one worker makes the job's unique id, the client hands it to all.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _comms, _guest
from ._comms import Shared
from ._errors import MisuseError, StartError

__all__ = ["Comms", "Shared"]


# On workers. All of it waits in other threads than the one that answers the scheduler.


async def _make_id() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, _guest.unique_id)


async def _join(args: Dict[str, Tuple[Any, ...]], dask_worker: Any = None) -> None:
    await asyncio.get_running_loop().run_in_executor(None, _comms.join, *args[dask_worker.address])


async def _call(job: str, function: Callable[..., Any], args: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
    return await asyncio.wrap_future(_comms.call(job, function, *args, **named))


def _process() -> Tuple[str, int]:
    """What tells processes apart."""
    return os.uname().nodename, os.getpid()


class Comms(_comms.Comms):
    """Makes workers of a Dask cluster the nodes of one job.

    Parameters
    ----------
    client
        A ``dask.distributed.Client`` that is not asynchronous.
    workers
        Addresses of those that take part; all that there are now, without it. Each must be a process of its own.
    **settings
        As for :func:`comem.init`.

    Raises
    ------
    StartError
        When the workers do not come together.
    MisuseError
        When workers share a process.
    """

    def __init__(self, client: Any, workers: Optional[Sequence[str]] = None, **settings: Any) -> None:
        self._client = client
        #: The workers' addresses, in the order of their nodes.
        self.workers: List[str] = sorted(client.nthreads()) if workers is None else list(workers)
        if not self.workers:
            raise StartError("the cluster has no workers; wait for some (Client.wait_for_workers)")
        processes = client.run(_process, workers=self.workers)
        if len(set(processes.values())) < len(self.workers):
            raise MisuseError("workers that share a process cannot be nodes; start the cluster with processes=True")
        super().__init__(len(self.workers), settings)

    def _make_id(self) -> str:
        first = self.workers[0]
        id: str = self._client.run(_make_id, workers=[first])[first]
        return id

    def _join(self, args: List[Tuple[Any, ...]]) -> None:
        self._client.run(_join, dict(zip(self.workers, args)), workers=self.workers)

    def _each(self, function: Callable[..., Any], args: Tuple[Any, ...], named: Dict[str, Any]) -> List[Any]:
        results = self._client.run(_call, self._job, function, args, named, workers=self.workers)
        return [results[worker] for worker in self.workers]
