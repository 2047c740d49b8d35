"""Another job for an interpreter that has been a node already: each has its own copy of the runtime.

The runtime knows one job in a process: threads, sockets, memory at agreed addresses, handlers of signals. When that
job is over, the interpreter parts with it, and loads the extension module once more from a copy of its file, which
the loader takes for another library. What arrays of the earlier job hold stays where it is, as memory of this process
alone, until nobody holds them any more.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import resource
import sys
from types import ModuleType
from typing import List

from . import _arrays, _collective, _core, _job, _sync
from ._errors import StartError

#: The file that the extension module was loaded from at first.
_FILE: str = _core.__file__
#: Earlier copies. They are never unloaded: the process has handlers of signals in them.
_parted: List[ModuleType] = []


def renew() -> None:
    """Parts with the job that this process was a node of, and makes it ready for another one.

    Raises
    ------
    StartError
        When the runtime cannot be loaded once more.
    """
    old = sys.modules[_core.__name__]
    _core.part()
    _allow_more_files()
    new = _another()
    _parted.append(old)
    sys.modules[_core.__name__] = new
    # Each module of the package has the name `_core`.
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == __package__ and getattr(module, "_core", None) is old:
            module._core = new  # type: ignore[attr-defined]
    for part in (_job, _sync, _collective, _arrays):
        part.renewed()


#: So many descriptors, and some to spare, a job leaves open whose node this process was: its sockets, above all.
_FILES_LEFT = 128


def _allow_more_files() -> None:
    """Has the process open as many files besides as it could before, as far as the system's own limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft + _FILES_LEFT, hard), hard))


def _another() -> ModuleType:
    """The extension module, from a copy of its file: what the loader knows already it would not load again."""
    try:
        with open(_FILE, "rb") as file:
            contents = file.read()
        # It stays open: as long as it does, no other file has its name.
        fd = os.memfd_create("comem runtime")
        with open(fd, "wb", closefd=False) as copy:
            copy.write(contents)
        path = f"/proc/self/fd/{fd}"
        loader = importlib.machinery.ExtensionFileLoader(_core.__name__, path)
        spec = importlib.util.spec_from_file_location(_core.__name__, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except (OSError, ImportError) as error:
        raise StartError(f"the runtime cannot be loaded for another job: {error}; restart the interpreter") from error
    return module


# Of the job of today: arrays of earlier ones a child has as it has all memory.
os.register_at_fork(after_in_child=lambda: _core.forked())
