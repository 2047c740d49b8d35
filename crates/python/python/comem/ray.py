"""Comem in Ray's actors: they become the nodes of one job, and their methods find shared arrays by reference.

::

    @ray.remote
    class Worker(comem.ray.Node):
        def fill(self, a, part):
            a[part::4] = part

    workers = [Worker.remote() for _ in range(4)]
    with comem.ray.Comms(workers) as comms:
        a = comms.zeros(1_000_000)
        ray.get([worker.fill.remote(a, n) for n, worker in enumerate(workers)])
        comms.barrier()
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

from . import _comms, _guest
from ._comms import Shared
from ._errors import StartError

__all__ = ["Comms", "Node", "Shared"]


class Node:
    """What an actor's class inherits from, so that its actors can be nodes."""

    def comem_make_id(self) -> str:
        """For :class:`Comms`: makes a job's id."""
        return _guest.unique_id()

    def comem_join(self, *args: Any) -> None:
        """For :class:`Comms`: joins a job."""
        _comms.join(*args)

    def comem_call(self, job: str, function: Callable[..., Any], args: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        """For :class:`Comms`: calls a function in the job's own thread."""
        return _comms.call(job, function, *args, **named).result()


class Comms(_comms.Comms):
    """Makes actors the nodes of one job.

    Parameters
    ----------
    actors
        Handles of actors whose classes inherit from :class:`Node`, in the order of their nodes.
    **settings
        As for :func:`comem.init`.

    Raises
    ------
    StartError
        When the actors do not come together.
    """

    def __init__(self, actors: Sequence[Any], **settings: Any) -> None:
        #: The actors, in the order of their nodes.
        self.actors: List[Any] = list(actors)
        if not self.actors:
            raise StartError("there are no actors; give their handles")
        super().__init__(len(self.actors), settings)

    def _make_id(self) -> str:
        import ray

        id: str = ray.get(self.actors[0].comem_make_id.remote())
        return id

    def _join(self, args: List[Tuple[Any, ...]]) -> None:
        import ray

        ray.get([actor.comem_join.remote(*own) for actor, own in zip(self.actors, args)])

    def _each(self, function: Callable[..., Any], args: Tuple[Any, ...], named: Dict[str, Any]) -> List[Any]:
        import ray

        return list(ray.get([actor.comem_call.remote(self._job, function, args, named) for actor in self.actors]))
