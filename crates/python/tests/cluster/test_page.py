"""The code in docs/python-cluster.md, as one program."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "python-cluster.md"


@pytest.mark.parametrize("engine", ["", "hlrc"], ids=["as users have it", "hlrc"])
def test_the_code_on_the_page_runs(engine):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COMEM_ENGINE": engine},
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
