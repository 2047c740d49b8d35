"""What objects say of themselves."""

from __future__ import annotations

from typing import Any


def of(x: Any) -> str:
    """What an object says of itself; if its own words cannot be had, what every object has."""
    try:
        return repr(x)
    except Exception:  # noqa: BLE001 - whatever the object's own code raises
        return object.__repr__(x)
