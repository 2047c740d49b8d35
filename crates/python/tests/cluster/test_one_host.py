"""Clusters on one host as users get them: all nodes map one memory, unless something asks for a protocol."""

import pytest
from clusters import IN_A_CHILD, alone

#: No engine is named.
UNASKED = {"COMEM_ENGINE": ""}
#: What a protocol would count.
COUNTERS = ["read_faults", "write_faults", "signals", "page_requests", "pages_fetched", "diffs_sent", "write_notices"]

WORK = f"""
    import comem, numpy as np
    lock = comem.Lock("count")
    with comem.Cluster(3{{options}}) as c:
        a, n = c.zeros((600, 512), name="a"), c.zeros(1)

        def work(a):
            comem.block(a)[...] = comem.rank + 1
            comem.barrier()
            for _ in range(20):
                with lock:
                    n[0] += 1
            return float(a.sum())

        print(c.run(work, a), n[0], c.map(lambda i: float(a[i].sum()), range(3)))
        stats = c.stats()
        print({{{{one["page_engine"] for one in stats}}}}, {{{{one["backbone"] for one in stats}}}})
        print(sum(one["pages"][name] for one in stats for name in {COUNTERS}))
"""
ANSWER = "[614400.0, 614400.0, 614400.0] 60.0 [512.0, 512.0, 512.0]"


def test_nothing_of_arrays_is_noticed_or_sent():
    lines = alone(WORK.format(options=""), **UNASKED).splitlines()
    assert lines == [ANSWER, "{'hardware'} {'shm'}", "0"]


@pytest.mark.parametrize(
    ("options", "variables", "words"),
    [
        (", rehearse=True", {}, "{'hlrc'} {'udp'}"),
        ("", {"COMEM_REHEARSE": "on"}, "{'hlrc'} {'udp'}"),
        (", engine='hlrc'", {}, "{'hlrc'} {'shm'}"),
        (", cache='1M'", {}, "{'hlrc'} {'shm'}"),
        (", backbone='udp'", {}, "{'hlrc'} {'udp'}"),
    ],
)
def test_what_asks_for_a_protocol_gets_one(options, variables, words):
    lines = alone(WORK.format(options=options), **UNASKED, **variables).splitlines()
    assert lines[:2] == [ANSWER, words] and int(lines[2]) > 0


def test_a_rehearsal_of_one_memory_is_refused():
    out = alone(
        """
        import comem
        try:
            comem.Cluster(2, engine="hardware", rehearse=True)
        except comem.StartError as error:
            print("COMEM_REHEARSE" in str(error) and "no engine hardware" in str(error))
        """
    )
    assert out == "True\n"


def test_arrays_outlive_their_cluster_and_a_child_has_none_of_todays():
    out = alone(
        IN_A_CHILD
        + """
        kept = []
        for nodes in (2, 3, 2):
            with comem.Cluster(nodes) as c:
                a = c.zeros(300_000)
                c.run(lambda: comem.block(a).fill(comem.rank + 1))
                kept.append(a)
        print([float(a.sum()) for a in kept], in_a_child(kept[2].sum))
        kept[0] += 1
        print(kept[0].sum())
        """,
        **UNASKED,
    )
    assert out.splitlines() == ["[450000.0, 600000.0, 450000.0] 7", "750000.0"]


def test_a_worker_that_dies_raises_node_lost_and_its_writes_stay():
    out = alone(
        """
        import comem, os
        c = comem.Cluster(3)
        a = c.zeros(1000)

        def dies():
            if comem.rank == 1:
                a[:] = 7
                os.kill(os.getpid(), 9)
            comem.barrier()

        try:
            c.run(dies)
        except comem.NodeLost as error:
            print("lost", error.node, a.sum())
        c.close()
        with comem.Cluster(2) as c:
            b = c.array(a)
            print(c.run(lambda: float(b.sum())))
        """,
        **UNASKED,
    )
    assert out.splitlines() == ["lost 1 7000.0", "[7000.0, 7000.0]"]


def test_a_picture_says_that_nothing_is_noticed():
    pytest.importorskip("matplotlib", reason="SKIP: Python clusters: matplotlib is not installed")
    out = alone(
        """
        import comem
        for rehearse in (False, True):
            with comem.Cluster(2, rehearse=rehearse) as c:
                a = c.zeros(100_000)
                c.run(lambda: comem.block(a).fill(1))
                title = " ".join(text.get_text() for text in c.plot().texts)
                print("nobody notices" in title, "rehearse=True" in title)
        """,
        **UNASKED,
    )
    assert out == "True True\nFalse False\n"
