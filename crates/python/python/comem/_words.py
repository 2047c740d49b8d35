"""What the runtime says, in the program's words: names for numbers; and what objects say of themselves."""

from __future__ import annotations

import re
from typing import Any, Dict

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


def of(x: Any) -> str:
    """What an object says of itself; if its own words cannot be had, what every object has."""
    try:
        return repr(x)
    except Exception:  # noqa: BLE001 - whatever the object's own code raises
        return object.__repr__(x)
