"""Joining a job in a process that somebody else has started: MPI, Dask, Ray, torchrun, a notebook, a batch system.

One process makes an id, hands it to the others by any means, and all join by it::

    id = comem.unique_id()                                  # one process
    comem.init(unique_id=id, rank=rank, processes=4)        # all four

With mpi4py the communicator is all that is needed: ``comem.init(mpi_comm=MPI.COMM_WORLD)``.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple, Union

from . import _core, _job, _renewal
from ._errors import ArgumentError, Error, MisuseError, StartError

#: What a setting may be: ``True`` is ``on``, ``False`` is ``off``.
Setting = Union[str, int, float, bool]


def unique_id() -> str:
    """Makes the id of a job, for :func:`init` in all its processes.

    This process listens until they have met; it must live as long, and need not be one of them. It does so at its
    host's address on the network that ``COMEM_IFACE`` names, else on the one that leads to other hosts.

    Returns
    -------
    str
        Text of less than 128 characters. It serves one job. Whoever has it can join: it is a secret.

    Raises
    ------
    SystemError
        When the process cannot listen.
    """
    if _core.is_used() and not _core.is_running():
        _renewal.renew()
    return _core.unique_id()


def init(
    unique_id: Optional[str] = None,
    rank: Optional[int] = None,
    processes: Optional[int] = None,
    *,
    mpi_comm: Any = None,
    **settings: Setting,
) -> None:
    """Joins a job of processes that somebody else has started. Returns when all have met.

    Without an id and a communicator it is :func:`start`, with settings. After :func:`finish` a process may join
    another job.

    Parameters
    ----------
    unique_id
        What :func:`unique_id` gave in one process.
    rank
        The node that this process becomes; without it, any that is free. The process that made the id is node 0 then.
    processes
        How many processes the job has.
    mpi_comm
        A communicator of mpi4py, in place of all these: its processes become the nodes, in the order of their ranks.
        Collective over it.
    **settings
        Those of ``comem run`` that concern a node: ``engine="lrc"``, ``heap="2G"``, ``start_timeout="60s"`` and so on.

    Raises
    ------
    StartError
        When the processes do not come together: the sentence says who is missing, or what does not fit.
    ArgumentError
        When the arguments contradict each other.
    MisuseError
        When this process is a node already.
    """
    if _core.is_running():
        raise MisuseError("this process has joined its job already; call comem.init once, before the first array")
    words = [(name, _word(value)) for name, value in settings.items()]
    if mpi_comm is not None:
        if (unique_id, rank, processes) != (None, None, None):
            raise ArgumentError("a communicator knows rank and processes, and needs no id; give either")
        unique_id, rank, processes = _of_communicator(mpi_comm)
    if _core.is_used():
        _renewal.renew()
    _core.start_as(unique_id, rank, processes, words)
    _job.place()


def _word(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _of_communicator(comm: Any) -> Tuple[str, int, int]:
    """An id that the communicator's first process makes, with rank and size."""
    rank: int = comm.Get_rank()
    made: List[Optional[str]] = [None, None]
    if rank == 0:
        try:
            made[0] = unique_id()
        except Error as error:
            # The others wait for a word.
            made[1] = str(error)
    text, failure = comm.bcast(made, root=0)
    if text is None:
        raise StartError(f"process 0 could not make an id: {failure}")
    return text, rank, comm.Get_size()
