"""What differs by chance from process to process: hashes of strings, and the order of sets."""

import json
import os
import subprocess
import sys

import pytest
from jobs import PATIENCE, lines, run

WORDS = """
    import comem, sys
    words = ["to", "be", "or", "not", "question", "whether", "nobler", "mind", "suffer"]
    mine = [word for word in words if hash(word) % comem.size == comem.rank]
    dealt = comem.gather(mine)
    shapes = {f"array {i}" for i in range(20)}
    arrays = [comem.zeros(1 + int(name.split()[1]), name=name) for name in shapes]
    if comem.rank == 0:
        print(sorted(word for part in dealt for word in part) == sorted(words), comem.stats().get("python_hash_seed"))
"""


def unset(**more):
    return {"PYTHONHASHSEED": "", **more}


@pytest.mark.parametrize("nodes", [2, 4])
def test_words_dealt_out_by_their_hashes_and_arrays_in_a_sets_order_are_right(nodes, tmp_path):
    stats = tmp_path / "stats.json"
    result = run(nodes, WORDS, "--stats", str(stats), env=unset())
    known = json.loads(stats.read_text())
    seed = known["python_hash_seed"]
    assert lines(result, 0) == [f"True {seed}"] and "hash()" not in result.stderr
    assert {node["python_hash_seed"] for node in known["nodes"]} == {seed}


def test_a_run_can_be_repeated_with_its_seed(tmp_path):
    def order(seed):
        text = "import comem\nif comem.rank == 0: print(list({str(i) for i in range(50)}))"
        return run(2, text, env={"PYTHONHASHSEED": seed}).stdout

    assert order("17") == order("17") != order("18")


def test_each_job_has_another_seed():
    text = "import comem, os\nif comem.rank == 0: print(os.environ['PYTHONHASHSEED'])"
    assert run(2, text, env=unset()).stdout != run(2, text, env=unset()).stdout


@pytest.mark.parametrize("flag", ["-E", "-I"])
def test_an_interpreter_that_ignores_the_seed_is_told_of_once(flag):
    text = "import comem; print(comem.gather(hash('comem')) and 'gathered')"
    command = [sys.executable, "-m", "comem", "run", "-n", "2", sys.executable, flag, "-c", text]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True, env={**os.environ, **unset()}
    )
    assert (
        result.stderr.count("hash() of strings, and the order of sets of them, differ") == 1
        and "zlib.crc32" in result.stderr
    )


def test_who_asks_for_a_random_seed_is_told_of_nothing():
    text = "import comem; print(len(set(comem.gather(hash('comem')) or [])))"
    result = run(2, text, env={"PYTHONHASHSEED": "random"})
    assert lines(result, 0) == ["2"] and "hash()" not in result.stderr
