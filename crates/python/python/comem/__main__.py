"""``python -m comem run -n 4 python program.py``: the command `comem`."""

from ._command import main

main()
