"""What the tests in this directory share. Those after which there is no cluster run in an interpreter of their own."""

import os
import subprocess
import sys
import textwrap

NODES = 3
#: Seconds after which an interpreter counts as hung.
PATIENCE = 60


#: The beginning of a program: how a child made by `fork` ends that uses something, with 7 where it is refused.
IN_A_CHILD = """
        import comem, os

        def in_a_child(use):
            child = os.fork()
            if child == 0:
                try:
                    use()
                    for _ in range(100):
                        pass
                    os._exit(1)
                except comem.ForkError:
                    os._exit(7)
                finally:
                    os._exit(2)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


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
