"""What the runtime says, in the program's words: names for numbers."""

from __future__ import annotations

import re
from typing import Dict

#: Names that are remembered; those that come later appear as numbers.
NAMES_MOST = 1 << 16

_names: Dict[int, str] = {}


def remember(number: int, name: str) -> None:
    """From now on sentences call the lock, or what it is, of this number by its name."""
    if len(_names) < NAMES_MOST:
        _names[number] = repr(name)


def in_python(sentence: str) -> str:
    """A sentence of the runtime's, as a user of the package understands it."""
    return re.sub("0x[0-9a-f]+", lambda number: _names.get(int(number[0], 16), number[0]), sentence)
