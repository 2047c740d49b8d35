"""The interpreter that workers run, and what it has of this one's state: its flags, and its path for modules.

A worker sees the caller's path and no other: no directory that happens to be the current one, of which modules could
be imported that the caller would not import, by accident or by somebody's design.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import List

from . import _chance
from ._errors import StartError

#: Names the interpreter of workers on this host, where the caller's own is not it.
VARIABLE = "COMEM_PYTHON"
#: The same for other hosts.
REMOTE_VARIABLE = "COMEM_REMOTE_PYTHON"

_RUN = "from comem._worker import main; main()"


def command(*arguments: str) -> List[str]:
    """What starts a worker on this host.

    Raises
    ------
    StartError
        When there is no interpreter to start: it says what to set.
    """
    return [_here(), *flags(), "-c", f"import sys; sys.path[:] = {_path_at_start()!r}; {_RUN}", *arguments]


def remote_command(*arguments: str) -> str:
    """The same on another host, as a line for its shell.

    It has a path of its own, without the directory where a shell begins.

    Raises
    ------
    StartError
        When no interpreter is known.
    """
    program = os.environ.get(REMOTE_VARIABLE) or os.environ.get(VARIABLE) or sys.executable
    if not program:
        raise StartError(
            f"this interpreter does not know its own program (sys.executable is {sys.executable!r}); "
            f"set {REMOTE_VARIABLE}"
        )
    start = f"import sys; sys.path[:] = filter(None, sys.path); {_RUN}"
    seed = [] if _chance.SEED is None else ["env", f"{_chance.VARIABLE}={_chance.SEED}"]
    return shlex.join([*seed, program, *flags(), "-c", start, *arguments])


def _here() -> str:
    named = os.environ.get(VARIABLE)
    version = ".".join(map(str, sys.version_info[:2]))
    advice = f"set {VARIABLE} to a Python {version} that has this package"
    if not named and getattr(sys, "frozen", False):
        raise StartError(f"this program is frozen and would start itself instead of a worker; {advice}")
    program = named or sys.executable
    if not program:
        raise StartError(
            f"this interpreter does not know its own program (sys.executable is {sys.executable!r}), as when it is "
            f"embedded; {advice}"
        )
    found = shutil.which(program)
    if found is None:
        why = "may not be run" if os.path.exists(program) else "does not exist"
        what = VARIABLE if named else "sys.executable"
        raise StartError(f"workers would run {program}, which {what} names and which {why}; {advice}")
    return found


def flags() -> List[str]:
    """The flags of this interpreter's command line, for another one: -I, -E, -s, -S, -P, -O, -B, -b, -W, -X."""
    # As multiprocessing starts its processes.
    out = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    known = {word.partition("=")[0] for option, word in zip(out, out[1:]) if option == "-X"}
    for name, value in getattr(sys, "_xoptions", {}).items():
        if name not in known:
            out += ["-X", name if value is True else f"{name}={value}"]
    return list(out)


def _path_at_start() -> List[str]:
    """Where a worker finds its own modules, before it gets the caller's path.

    The standard library's come first, and current directories last.

    The caller had them before it came to be where it is now; a file of the same name may lie there.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = sysconfig.get_paths()
    standard = {paths["stdlib"], paths["platstdlib"], os.path.join(paths["platstdlib"], "lib-dynload")}

    def rank(entry: str) -> int:
        if os.path.isabs(entry) and not _is_current(entry):
            return (
                0
                if entry in standard
                or entry.endswith(".zip")
                and os.path.dirname(entry) in map(os.path.dirname, standard)
                else 1
            )
        return 2

    return sorted(dict.fromkeys([*(entry for entry in sys.path if isinstance(entry, str)), here]), key=rank)


def _is_current(directory: str) -> bool:
    try:
        return os.path.samefile(directory, os.curdir)
    except OSError:
        return False
