"""The command `comem`, which comes with the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import List, Optional

_HERE = os.path.dirname(os.path.abspath(__file__))
#: The library that lets system calls use shared memory, in processes that preload it.
WRAPPER = os.path.join(_HERE, "_bin", "libcomem_wrap.so")


def find() -> Optional[str]:
    """Where the command is: what COMEM_COMMAND says, else the package's own, else the one on the path."""
    for path in (os.environ.get("COMEM_COMMAND"), os.path.join(_HERE, "_bin", "comem")):
        if path and os.access(path, os.X_OK):
            return path
    return shutil.which("comem")


def wrapper() -> str:
    """The path of :data:`WRAPPER` for ``LD_PRELOAD``, in which blanks and colons end names: where it has one, a link to
    it."""
    command = find()
    if not (" " in WRAPPER or ":" in WRAPPER) or command is None:
        return WRAPPER
    asked = subprocess.run([command, "config", "--wrapper"], stdout=subprocess.PIPE, text=True, check=False)
    return asked.stdout.strip() or WRAPPER


def main(arguments: Optional[List[str]] = None) -> None:
    """Becomes the command, with these arguments or the process's own; ``wrapper`` alone prints what :func:`wrapper`
    gives."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["wrapper"]:
        print(wrapper())
        return
    path = find()
    if path is None:
        sys.exit(
            "comem: the command comem is not in this package and not on the path; set COMEM_COMMAND to where it is"
        )
    os.execv(path, ["comem", *arguments])


def cc() -> None:
    """Becomes ``comem cc``, the C compiler with what programs for Comem need; so a makefile can name it."""
    main(["cc", *sys.argv[1:]])


def cxx() -> None:
    """The same for C++: ``comem-cxx``."""
    main(["c++", *sys.argv[1:]])


def fc() -> None:
    """The same for Fortran: ``comem-fc``."""
    main(["fc", *sys.argv[1:]])
