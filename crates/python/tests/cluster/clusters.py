"""What the tests in this directory share. Those after which there is no cluster run in an interpreter of their own."""

import os
import subprocess
import sys
import textwrap

NODES = 3
#: Seconds after which an interpreter counts as hung.
PATIENCE = 60


def alone(text, **environment):
    """Runs a program in an interpreter of its own; gives what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
