"""The code in docs/python-cluster.md, as one program."""

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "python-cluster.md"


def test_the_code_on_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
