"""What can go wrong: one class for each kind of error, all under :class:`Error`."""

from __future__ import annotations


from typing import Any, Optional

from . import _core


class Error(Exception):
    """Anything that Comem says went wrong."""

    #: The node that was lost, for :class:`NodeLost`.
    node: Optional[int] = None

    def __init__(self, *arguments: Any) -> None:
        # An exception that another thread raises in this one comes without its sentence.
        if not arguments and (words := _core.last_words()):
            arguments, self.node = (words[0],), words[1]
        super().__init__(*arguments)


class StartError(Error):
    """The job could not be started or joined."""


class ArgumentError(Error, ValueError):
    """An argument that makes no sense, or that is not the same on every node."""


class HeapFullError(ArgumentError, MemoryError):
    """No room for an array in the shared heap."""


class MisuseError(Error, RuntimeError):
    """A call out of order: a lock released that is not held, and the like."""


class MismatchError(MisuseError):
    """Nodes did not make the same collective calls in the same order."""


class ThreadError(MisuseError):
    """More threads use Comem than the node has places for."""


class FinishedError(MisuseError):
    """Comem was used after :func:`comem.finish`."""


class ForkError(MisuseError):
    """Comem was used in a process made by ``fork`` after the start."""


class SendError(MisuseError):
    """A shared array was to be sent to a process that is no node of the job."""


class NodeLost(Error, ConnectionError):
    """Another node ended or fell silent; the job cannot go on, this interpreter can."""


class Stopped(Error):
    """The job was told to end."""


class SystemError(Error, OSError):  # noqa: A001 - named as in the C interface, always used with its module's name
    """The operating system refused something."""
