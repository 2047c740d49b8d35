"""Runs programs as jobs: what the tests in this directory share."""

import os
import subprocess
import sys
import textwrap

COMMAND = [sys.executable, "-m", "comem", "run"]
#: Pages have a protocol, as between hosts, where a test does not say something else: most of them look at that.
PROTOCOL = {"COMEM_ENGINE": "hlrc"}
#: Seconds after which a job counts as hung.
PATIENCE = 60


def run(nodes, text, *options, env=None, check=True, program=()):
    """Runs a program's text on some nodes; gives what came of it, with standard output and errors as text."""
    command = [*COMMAND, "-n", str(nodes), *options, *program, sys.executable, "-c", textwrap.dedent(text)]
    environment = {**os.environ, **PROTOCOL, **(env or {})}
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)
    if check:
        assert result.returncode == 0, result.stdout + result.stderr
    return result


def lines(result, node):
    """The lines that a node has printed."""
    return [line[4:] for line in result.stdout.splitlines() if line.startswith(f"[{node}] ")]
