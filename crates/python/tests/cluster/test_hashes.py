"""Hashes of strings in a cluster: workers have the caller's seed, or functions that call ``hash`` are warned of."""

import sys

import pytest
from clusters import alone

#: As its first statement: a warning is an exception.
STRICT = "import warnings; warnings.simplefilter('error', RuntimeWarning)"


@pytest.mark.parametrize("seed", ["0", "4711"])
@pytest.mark.parametrize("hosts", [None, ["a"]], ids=["here", "there"])
def test_workers_have_a_seed_that_the_caller_was_started_with(seed, hosts):
    out = alone(
        f"""
        {STRICT}
        import os
        import comem
        os.environ["PYTHONHASHSEED"] = "5"
        with comem.Cluster({2 if hosts is None else None}, {hosts}) as c:
            print(len(set(c.run(lambda: hash("comem")))), len(set(c.run(lambda: str({{str(i) for i in range(99)}})))))
        """,
        PYTHONHASHSEED=seed,
        COMEM_RSH="env -u PYTHONHASHSEED sh -c 'exec sh -c \"$1\"'",
        COMEM_IFACE="lo",
    )
    assert out == "1 1\n"


CALLS = {
    "itself": "c.run(lambda: hash('a'))",
    "a function that it calls": "c.run(deals)",
    "within a comprehension": "c.run(lambda: [hash(w) for w in ['a']])",
    "a partial one": "c.run(functools.partial(part, 'a'))",
    "a method": "c.run(Thing().key)",
    "of items": "c.map(part, ['a', 'b'])",
    "closed over": "c.run(outer())",
}
PROGRAM = """
    import functools, warnings
    import comem

    def part(word):
        return hash(word) % 2

    def deals():
        return part("a")

    class Thing:
        def key(self):
            return hash("a")

    def outer():
        def inner():
            return hash("a")
        return lambda: inner()

    with comem.Cluster(2) as c, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        {call}
        {call}
        print([w.category.__name__ for w in caught], [w.filename for w in caught], *(w.message for w in caught))
"""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_function_that_calls_hash_is_warned_of_once_where_seeds_differ(call):
    out = alone(PROGRAM.format(call=call), PYTHONHASHSEED="random")
    assert out.startswith("['RuntimeWarning'] ['<string>'] ") and "PYTHONHASHSEED=0" in out and "zlib.crc32" in out
    assert alone(PROGRAM.format(call=call), PYTHONHASHSEED="1").startswith("[] []")


def test_other_functions_are_warned_of_in_no_way():
    out = alone(
        f"""
        {STRICT}
        import comem
        def hash_of(x): return x.hash
        def own(x):
            def hash(y): return y
            return hash(x)
        class Thing: hash = 3
        def __hash__(self): return 1
        with comem.Cluster(2) as c:
            print(c.run(hash_of, Thing) if {sys.version_info[0]} else None, c.run(own, 4), c.map(abs, [-1]), c.run(int))
        """,
        PYTHONHASHSEED="random",
    )
    assert out == "[3, 3] [4, 4] [1] [0, 0]\n"
