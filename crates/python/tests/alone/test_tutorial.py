"""The tutorial's programs do what it says."""

import pathlib
import re

import pytest
from jobs import lines, run

TUTORIAL = pathlib.Path(__file__).resolve().parents[4] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_a_program_of_the_tutorial_runs(block, nodes):
    result = run(nodes, BLOCKS[block], env={"COMEM_ENGINE": ""})
    if block == 0:
        assert lines(result, 0) == ["ndarray (1000, 1000) True"]


def test_the_tutorial_has_programs():
    assert len(BLOCKS) == 6
