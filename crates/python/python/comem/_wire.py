"""What goes between a caller and its workers: messages, and pickles in which shared arrays are references.

A shared array is not copied: its pickle holds the number of its memory and how it lies there, and means something in
this job alone. What a function refers to is pickled by cloudpickle where there is one, so that lambdas and what was
typed into a notebook can be sent.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import struct
import threading
import traceback
import types
from typing import Any, Callable, Optional, Tuple, Type

import numpy as np

from . import _arrays, _words
from ._errors import ArgumentError, Error, SendError

#: What a message begins with, which no text does; then come its bytes' number and its bytes.
_MARK = b"\xffcomem:\n"
_HEAD = struct.Struct("<8sQ")


def _as(kind: type, a: np.ndarray) -> np.ndarray:
    return a.view(kind)


def _reference(a: Any) -> Any:
    """How an object is pickled if it is a shared array."""
    if not isinstance(a, np.ndarray) or not _arrays.is_shared(a):
        if isinstance(a, np.ndarray) and _arrays.was_shared(a):
            raise SendError(
                "an array of an earlier comem.Cluster cannot be sent to the workers of this one; share it anew with "
                "Cluster.array(a), or send a copy, a.copy()"
            )
        return NotImplemented
    kind = type(a)
    if kind is np.ndarray:
        return _arrays.resolve, (_arrays.refer(a),)
    if isinstance(a, np.ma.MaskedArray):
        raise ArgumentError(
            "a masked array over shared memory cannot be sent: send its .data and its .mask, or a copy of it, .copy()"
        )
    if (kind.__reduce__, kind.__setstate__) != (np.ndarray.__reduce__, np.ndarray.__setstate__):
        raise ArgumentError(
            f"a {kind.__name__} over shared memory cannot be sent, since its class has a pickle of its own, which is a "
            "copy: send numpy.asarray(a) and view it there, or send a copy, a.copy()"
        )
    # A class whose module nobody has imported, such as NumPy's lazy numpy.rec, cloudpickle would copy.
    with contextlib.suppress(ImportError):
        importlib.import_module(kind.__module__)
    return _as, (kind, a.view(np.ndarray))


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped]

        return cloudpickle
    except ImportError:
        pass
    try:
        from joblib.externals import cloudpickle  # type: ignore[import-untyped] # joblib brings its own

        return cloudpickle
    except ImportError:
        return None


def _with_references(pickler: Type[Any]) -> Type[Any]:
    class Referring(pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            reference = _reference(obj)
            if reference is not NotImplemented:
                return reference
            inherited = getattr(super(), "reducer_override", None)
            return NotImplemented if inherited is None else inherited(obj)

    return Referring


class _Plain(_with_references(pickle.Pickler)):  # type: ignore[misc]
    """Without cloudpickle: what is defined in ``__main__`` has a name that means nothing elsewhere."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (types.FunctionType, type)) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__qualname__} is defined here and not in a module")
        return super().reducer_override(obj)


_clever: Optional[Type[Any]] = None


def _pickle(pickler: Type[Any], x: Any) -> bytes:
    into = io.BytesIO()
    pickler(into, protocol=5).dump(x)
    return into.getvalue()


def dumps(x: Any, to: str = "the workers") -> bytes:
    """Pickles, with shared arrays as references; ``to`` is whom it is for.

    Raises
    ------
    ArgumentError
        When something in ``x`` cannot be sent.
    """
    global _clever
    if _clever is None:
        clever = _cloudpickle()
        _clever = _Plain if clever is None else _with_references(clever.CloudPickler)
    try:
        return _pickle(_clever, x)
    except Error:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the object's own code raises
        advice = "" if _clever is not _Plain else "; install cloudpickle, or put functions into a module of their own"
        raise ArgumentError(f"{_shown(x)} cannot be sent to {to}: {error}{advice}") from error


def show(text: str, stream: Any) -> None:
    """Prints as well as the stream can: it may be closed, nobody may read it, or its encoding may lack a character."""
    try:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
    except Exception:  # noqa: BLE001 - a stream of the program's own; workers are to be heard all the same
        pass


def _shown(x: Any) -> str:
    text = _words.of(x)
    return text if len(text) <= 80 else text[:77] + "..."


def loads(data: bytes) -> Any:
    """The opposite of :func:`dumps`."""
    return pickle.loads(data)


def refuse_elsewhere() -> None:
    """Sees to it that ``multiprocessing`` refuses shared arrays: its processes are no nodes."""
    from multiprocessing.reduction import ForkingPickler

    def reduce(a: np.ndarray) -> Any:
        if _arrays.is_shared(a):
            raise SendError(
                "a shared array cannot be sent to a process outside of the job; use Cluster.map, or send a copy, "
                "array.copy()"
            )
        return a.__reduce_ex__(4)

    ForkingPickler.register(np.ndarray, reduce)


class Garbled(Exception):
    """Something else came where a message is due: it says what."""


class Channel:
    """Whole messages over a pair of descriptors. Several threads may send."""

    def __init__(self, reads: int, writes: int) -> None:
        self.reads = reads
        self._writes = writes
        self._sending = threading.Lock()

    def send(self, *message: Any) -> None:
        """Sends a tuple of plain things.

        Raises
        ------
        OSError
            When the other side is gone.
        """
        data = pickle.dumps(message, protocol=5)
        with self._sending:
            self._write(_HEAD.pack(_MARK, len(data)))
            self._write(data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._writes, rest) :]

    def receive(self) -> Tuple[Any, ...]:
        """Waits for the next message.

        Raises
        ------
        EOFError
            When the other side is gone.
        Garbled
            When what comes is no message.
        """
        _, count = _HEAD.unpack(self._read(_HEAD.size, _MARK))
        message: Tuple[Any, ...] = pickle.loads(self._read(count))
        return message

    def _read(self, count: int, mark: bytes = b"") -> bytearray:
        data = bytearray(count)
        rest = memoryview(data)
        while rest:
            try:
                got = os.readv(self.reads, [rest])
            except ConnectionResetError:
                got = 0
            if got == 0:
                raise EOFError("the other side of a channel is gone")
            rest = rest[got:]
            begins = data[: min(count - len(rest), len(mark))]
            # A part of it shows what it is, and more may never come.
            if not mark.startswith(begins):
                raise Garbled(repr(data[: count - len(rest)].decode(errors="replace")))
        return data

    def close(self) -> None:
        """Lets the other side know that nothing will come any more."""
        for fd in {self.reads, self._writes}:
            try:
                os.close(fd)
            except OSError:
                pass
        self.reads = self._writes = -1


class RemoteTraceback(Exception):
    """The cause of an exception that came from another node: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


def failure(error: BaseException, node: int) -> bytes:
    """An exception for the way to the caller, with its traceback as text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = f"\n\"\"\"\nOn node {node}:\n{text}\"\"\""
    try:
        data = dumps(error)
        loads(data)
    except Exception:  # noqa: BLE001 - exceptions of all sorts cannot be pickled, or not be made again
        data = dumps(RuntimeError("".join(traceback.format_exception_only(type(error), error)).strip()))
    return pickle.dumps((data, text), protocol=5)


def raised(data: bytes) -> BaseException:
    """The exception that :func:`failure` wrapped, with its traceback as its cause."""
    blob, text = pickle.loads(data)
    error: BaseException = loads(blob)
    error.__cause__ = RemoteTraceback(text)
    return error


def attempt(work: Callable[[], Any], node: int) -> Tuple[bool, bytes]:
    """Does something; its result or its exception, ready to be sent."""
    try:
        return True, dumps(work(), "the caller")
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt and SystemExit too belong to the caller
        return False, failure(error, node)
