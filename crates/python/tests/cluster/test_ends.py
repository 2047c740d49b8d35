"""How clusters end: closed, lost, or not started at all."""

import os
import pathlib
import stat
import subprocess
import sys
import textwrap
import threading
import time

import comem
import pytest
from clusters import PATIENCE, alone


def test_after_close_use_is_an_exception_and_arrays_stay(c):
    del c
    out = alone(
        """
        import comem, numpy as np
        with comem.Cluster(3) as c:
            a = c.zeros(300_000)
            c.run(lambda a: comem.block(a).fill(comem.rank), a)
        for use in (lambda: c.run(int), lambda: c.map(abs, [1]), lambda: c.zeros(3), c.stats, lambda: comem.prefetch(a),
                    lambda: comem.fetch_add(a, 0), comem.barrier, lambda: comem.zeros(3)):
            try:
                use()
                print("nothing happened")
            except comem.FinishedError:
                pass
        print(np.unique(a, return_counts=True)[1].tolist())
        with comem.Cluster(3) as again:
            print(again.run(lambda a: float(a.sum()), a))
        """
    )
    assert out.splitlines() == ["[100000, 100000, 100000]", "[300000.0, 300000.0, 300000.0]"]


LOSS = """
    import comem, os, signal, sys, time
    import numpy as np
    c = comem.Cluster(3)
    a = c.zeros(1_000_000)
    a[:] = 1
    pids = c.run(os.getpid)

    def die():
        if comem.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def busy(_):
        time.sleep(0.01)
        die()

    {lose}
    def expect(use):
        try:
            use()
            print("nothing happened")
        except comem.NodeLost as error:
            print("lost", error.node, error)
    {use}
    expect(lambda: c.run(int))
    expect(lambda: c.zeros(3))
    assert a.sum() == 1_000_000 and np.ones(3).sum() == 3
    c.close()
    sys.exit(0)
"""


@pytest.mark.parametrize(
    ("lose", "use"),
    [
        ("os.kill(pids[1], 9)", "time.sleep(0.5)"),
        ("", "expect(lambda: c.run(die))"),
        ("", "expect(lambda: c.run(lambda: (die(), comem.barrier())))"),
        ("", "expect(lambda: c.run(lambda: (die(), time.sleep(60 if comem.rank else 0))))"),
        ("", "expect(lambda: c.map(busy, range(10_000)))"),
    ],
)
def test_a_worker_that_dies_raises_node_lost_and_the_interpreter_stays(lose, use):
    lines = alone(LOSS.format(lose=lose, use=use)).splitlines()
    assert len(lines) >= 2, lines
    for line in lines:
        assert line.startswith("lost 1 node 1 (pid "), lines


def test_what_another_thread_makes_of_memory_that_is_lost_does_not_reach_the_main_thread_without_its_exception():
    out = alone(
        """
        import comem, os, threading, time
        from concurrent.futures import ThreadPoolExecutor
        c = comem.Cluster(2)
        a = c.zeros(10_000_000)
        c.run(lambda: a.fill(1) if comem.rank == 1 else None)
        os.kill(c.run(os.getpid)[1], 9)
        while c._team.lost is None:
            time.sleep(0.01)
        pool = ThreadPoolExecutor(1)
        try:
            number = pool.submit(lambda: a[5_000_000]).result()
            time.sleep(0.1)
            print("went on with", number)
        except comem.NodeLost as error:
            print("lost", error.node)
        # Once is enough.
        try:
            thread = threading.Thread(target=lambda: a[6_000_000])
            thread.start()
            thread.join()
            time.sleep(0.1)
        except comem.NodeLost:
            print("lost again")
        print("done", flush=True)
        os._exit(0)
        """
    )
    assert out.splitlines() == ["lost 1", "done"]


def test_a_worker_that_dies_before_its_work_is_sent_raises_node_lost_too():
    out = alone(
        """
        import comem, os, time
        c = comem.Cluster(3)
        pids = c.run(os.getpid)

        class Fatal:
            def __reduce__(self):
                os.kill(pids[1], 9)
                while c._team.lost is None:
                    time.sleep(0.01)
                return int, ()

        try:
            c.map(str, [Fatal()] * 9, chunksize=1)
        except comem.NodeLost as error:
            print("lost", error.node)
        """
    )
    assert out == "lost 1\n"


def test_different_calls_on_different_nodes_end_the_cluster_and_not_the_interpreter():
    out = alone(
        """
        import comem
        c = comem.Cluster(3)
        for use in (lambda: c.run(lambda: comem.barrier() if comem.rank else comem.allreduce(1)), lambda: c.run(int)):
            try:
                use()
            except comem.Error as error:
                print(type(error).__name__)
        """
    )
    assert out.split() == ["MismatchError", "Stopped"]


def test_a_process_that_has_asked_for_its_size_can_start_a_cluster_unless_it_holds_arrays():
    out = alone(
        """
        import comem
        print(comem.size, comem.allreduce(2))
        a = comem.zeros(3)
        try:
            comem.Cluster(2)
        except comem.MisuseError as error:
            print(error)
        del a
        with comem.Cluster(2) as c:
            print(c.run(lambda: comem.size))
        """
    )
    assert out.splitlines()[::2] == ["1 2", "[2, 2]"] and "shared arrays of a job of one node" in out


def test_a_node_of_a_job_cannot_start_a_cluster():
    text = "import comem\ntry:\n    comem.Cluster(2)\nexcept comem.MisuseError as error:\n    print(error)"
    assert "as a node of a job (comem run)" in alone(text, COMEM_NODE="0", COMEM_NODES="1")


def test_a_cluster_whose_name_is_lost_is_found_again():
    out = alone(
        """
        import comem
        print(comem.Cluster.current())
        comem.Cluster(2)
        print(comem.Cluster.current())
        comem.Cluster.current().close()
        print(comem.Cluster(2).run(lambda: comem.rank), comem.Cluster.current().size)
        """
    )
    assert out == "None\n<comem.Cluster of 2 nodes>\n[0, 1] 2\n"


def test_after_options_that_make_no_sense_a_cluster_can_start():
    out = alone(
        """
        import comem
        for options in {"engine": "magic"}, {"cache": "lots"}:
            try:
                comem.Cluster(2, **options)
            except comem.StartError as error:
                print(*(word in str(error) for word in options.values()))
        with comem.Cluster(2) as c:
            print(c.run(lambda: comem.rank))
        """
    )
    assert out == "True\nTrue\n[0, 1]\n"


def test_after_a_cluster_that_did_not_start_the_next_one_can():
    out = alone(
        """
        import comem
        for _ in range(2):
            try:
                comem.Cluster(hosts=["nowhere"])
            except comem.StartError as error:
                print("status 5" in str(error))
        print(comem.size)
        with comem.Cluster(2) as c:
            print(c.run(lambda: comem.rank))
        """,
        COMEM_RSH="sh -c 'exit 5'",
    )
    assert out == "True\nTrue\n1\n[0, 1]\n"


@pytest.mark.parametrize("first", ["", "sleep 0.3;"])
def test_a_remote_shell_that_fails_is_quoted_whoever_is_ended_with_it(tmp_path, first):
    # Of two hosts' shells one waits, and is ended because of the other; and of two on one host both fail.
    shell = tmp_path / "ssh"
    words = 'echo "ssh: Could not resolve hostname $1: Name or service not known" >&2; exit 255'
    shell.write_text(
        f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; [ "${{1#*=}}" = "$1" ] || shift; done\n'
        f'[ "$1" = slow ] && exec sleep 60\n{first} {words}\n'
    )
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    out = alone(
        """
        import comem
        for hosts in ["nosuchhost:2"], ["slow", "nosuchhost"], ["nosuchhost", "slow"]:
            try:
                comem.Cluster(hosts=hosts)
            except comem.StartError as error:
                text = str(error)
                words = "ended with status 255", "Could not resolve hostname nosuchhost"
                print("signal" in text, *(word in text for word in words))
        """,
        PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    )
    assert out == "False True True\n" * 3


def test_a_worker_that_cannot_start_is_named_with_what_it_said(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'COMEM_TEST_BREAK' in os.environ: sys.exit('no heart')"
    )
    text = """
        import comem, os
        os.environ["COMEM_TEST_BREAK"] = "1"
        try:
            comem.Cluster(2)
        except comem.StartError as error:
            print(error)
    """
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    out = alone(text, PYTHONPATH=path)
    assert "node 1 (pid" in out and "no heart" in out, out


def test_workers_on_other_hosts_are_started_by_a_remote_shell(tmp_path):
    shell = tmp_path / "rsh"
    shell.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/hosts\nshift\nexec sh -c "$*"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    text = """
        import comem
        with comem.Cluster(hosts=["a:2", "localhost"]) as c:
            a = c.zeros(1000)
            c.run(lambda a: comem.block(a).fill(comem.rank), a)
            print(a.sum(), [s["auth"] for s in c.stats()])
            c.run(lambda: print("here", comem.rank) if comem.rank == 1 else None)
    """
    here = str(pathlib.Path(comem.__file__).parent.parent)
    out = alone(text, COMEM_RSH=str(shell), PYTHONPATH=here, COMEM_IFACE="lo")
    assert "1500.0 [True, True, True, True]" in out
    assert (tmp_path / "hosts").read_text().split() == ["a", "a"]


@pytest.mark.parametrize(
    ("argument", "variable"), [(", mtu=1400", {}), ("", {"COMEM_MTU": "1400"}), (", mtu=1400", {"COMEM_MTU": "1300"})]
)
def test_nodes_on_other_hosts_have_the_callers_mtu(tmp_path, argument, variable):
    shell = tmp_path / "rsh"
    shell.write_text('#!/bin/sh\nshift\nunset COMEM_MTU\nexec sh -c "$*"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    text = f"""
        import comem, os
        with comem.Cluster(hosts=["a", "localhost"]{argument}) as c:
            print(c.run(lambda: os.environ.get("COMEM_MTU"))[1:])
    """
    here = str(pathlib.Path(comem.__file__).parent.parent)
    assert "['1400', '1400']" in alone(text, COMEM_RSH=str(shell), PYTHONPATH=here, COMEM_IFACE="lo", **variable)


@pytest.mark.parametrize("greeting", ["Hi", "Welcome to this computer. Be nice to it."])
def test_a_shell_that_greets_is_named_with_its_greeting(tmp_path, greeting):
    shell = tmp_path / "rsh"
    shell.write_text(f'#!/bin/sh\nshift\necho "{greeting}"\nexec sh -c "$*"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    text = """
        import comem
        try:
            comem.Cluster(hosts=["a", "localhost"])
        except comem.StartError as error:
            print(error)
    """
    out = alone(text, COMEM_RSH=str(shell), COMEM_IFACE="lo")
    assert "node 1 (host a, pid" in out and f"{greeting[:8]}" in out and "shell" in out, out


TALKS = """
    import comem, io, os, sys
    c = comem.Cluster(3)

    def talk():
        if comem.rank:
            os.write(1, "für alle\\n".encode())
        return comem.rank

    print(c.run(talk), flush=True)
    {silence}
    print(c.run(talk), c.run(talk), file=sys.stderr, flush=True)
    c.close()
    os._exit(0)
"""


@pytest.mark.parametrize("silence", ["sys.stdin.readline()", "sys.stdout.close()", "sys.stdout = None"])
def test_output_that_nobody_can_read_silences_no_worker(silence):
    program = textwrap.dedent(TALKS.format(silence=silence))
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(
        [sys.executable, "-c", program], text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, **pipes
    ) as process:
        hangs = threading.Timer(PATIENCE, process.kill)
        hangs.start()
        first = [process.stdout.readline() for _ in range(3)]
        process.stdout.close()
        process.stdout = None
        _, errors = process.communicate("go on\n")
        hangs.cancel()
    assert sorted(first) == ["[0, 1, 2]\n", "[1] f\\xfcr alle\n", "[2] f\\xfcr alle\n"]
    assert "[0, 1, 2] [0, 1, 2]" in errors, errors


def test_an_error_in_what_hears_the_workers_ends_the_cluster_and_hangs_nobody():
    out = alone(
        """
        import comem
        from comem import _launch
        c = comem.Cluster(3)
        _launch.Team._hear = lambda team, worker: 1 / 0
        try:
            c.run(int)
        except comem.Stopped as error:
            print(error)
        """
    )
    assert "ZeroDivisionError" in out


def test_workers_end_with_their_caller():
    text = """
        import comem, os
        c = comem.Cluster(3)
        print(*c.run(os.getpid)[1:], flush=True)
        os._exit(3)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    until = time.monotonic() + 10
    pids = [int(pid) for pid in result.stdout.split()]
    while time.monotonic() < until and any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.05)
    assert len(pids) == 2 and not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
