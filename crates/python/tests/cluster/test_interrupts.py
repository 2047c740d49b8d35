"""Ctrl-C, at every time of a cluster's life."""

import os
import signal
import threading
import time

import comem
import numpy as np
import pytest
from clusters import NODES, PATIENCE, alone


def test_interrupts_reach_the_workers(c):
    def slow():
        if comem.rank:
            time.sleep(PATIENCE)

    for work in (lambda: c.run(slow), lambda: c.map(lambda _: time.sleep(0.2), range(1000), chunksize=50)):
        began = time.monotonic()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            work()
        assert time.monotonic() - began < PATIENCE / 2
        assert c.run(lambda: comem.rank) == list(range(NODES))


def test_an_interrupt_frees_those_who_wait_for_one_another(c):
    caller = os.getpid()

    def work(waiting):
        ready = comem.Semaphore("ready")
        if comem.rank == 2:
            for _ in range(waiting):
                ready.acquire()
            # Nodes that wait ask every 50 ms whether they shall go on.
            os.kill(caller, signal.SIGINT)
            time.sleep(PATIENCE)
        if comem.rank < waiting or comem.rank == 1:
            ready.release()
            comem.barrier()

    for waiting in (1, 2):
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            # Node 1 waits at the barrier; this one too, or else for the end of all.
            c.run(work, waiting)
        assert time.monotonic() - began < PATIENCE / 2
        a = c.full(10, 1.0)
        assert c.run(np.sum, a) == [10.0] * NODES


@pytest.mark.parametrize("heard", [True, False])
def test_an_interrupt_ends_no_later_wait_for_a_page_and_no_short_one(heard):
    out = alone(
        f"""
        import comem, os, signal, threading, time
        with comem.Cluster(3, backbone="udp") as c:
            a = c.zeros(10_000, home=2)
            c.run(lambda: a.fill(1) if comem.rank == 2 else None)
            pids = c.run(os.getpid)

            def later(after, node, number):
                threading.Timer(after, os.kill, (pids[node], number)).start()

            def sum_while_its_home_stands_still(seconds):
                # Who waits for a page asks every 50 ms whether it shall go on.
                os.kill(pids[2], signal.SIGSTOP)
                later(seconds, 2, signal.SIGCONT)
                return float(a.sum())

            def reads():
                if comem.rank == 1:
                    try:
                        later(0.1, 1, signal.SIGINT)
                        time.sleep(5) if {heard} else sum_while_its_home_stands_still(0.25)
                        time.sleep(5)
                    except KeyboardInterrupt:
                        pass
                    return sum_while_its_home_stands_still(0.6)

            print(c.run(reads)[1], c.run(lambda: comem.rank))
        """
    )
    assert out == "10000.0 [0, 1, 2]\n"


def test_an_interrupt_ends_the_callers_wait_for_a_page():
    out = alone(
        """
        import comem, os, signal, threading, time
        c = comem.Cluster(3, backbone="udp")
        a = c.zeros(10_000, home=2)
        c.run(lambda: a.fill(1) if comem.rank == 2 else None)
        pids = c.run(os.getpid)
        os.kill(pids[2], signal.SIGSTOP)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            a.sum()
            time.sleep(5)
        except KeyboardInterrupt:
            print(time.monotonic() - began < 5)
        os.kill(pids[2], signal.SIGKILL)
        """
    )
    assert out == "True\n"


@pytest.mark.parametrize("who", [0, 1])
def test_an_interrupt_ends_waits_that_nobody_would(who):
    out = alone(
        f"""
        import comem, os, signal, time
        c = comem.Cluster(3)
        caller = os.getpid()

        def work():
            if comem.rank == 2:
                comem.Semaphore("ready").acquire()
                time.sleep(0.5)  # until it waits: before that an interrupt ends the call alone
                os.kill(caller, signal.SIGINT)
            if comem.rank == {who}:
                with comem.Lock("held"):
                    comem.Semaphore("ready").release()
                    comem.Semaphore("never").acquire()

        for end in (KeyboardInterrupt, comem.Error):
            try:
                c.run(work)
            except end as error:
                print(end.__name__)
        """
    )
    assert out.split() == ["KeyboardInterrupt", "Error"]


def test_a_second_interrupt_ends_waits_for_one_another_too():
    out = alone(
        """
        import comem, os, signal, time
        c = comem.Cluster(3)
        caller = os.getpid()

        def work():
            if comem.rank == 2:
                interrupts = [caller, caller]
                # The first one is handed on to this node, which does not care; then it asks for the second.
                signal.signal(signal.SIGINT, lambda *_: interrupts and os.kill(interrupts.pop(), signal.SIGINT))
                comem.Semaphore("ready").acquire()
                time.sleep(0.5)  # until both wait
                os.kill(interrupts.pop(), signal.SIGINT)
                while True:
                    time.sleep(1)
            comem.Semaphore("ready").release()
            comem.barrier()

        for end in (KeyboardInterrupt, comem.Error):
            try:
                c.run(work)
            except end as error:
                print(end.__name__)
        """
    )
    assert out.split() == ["KeyboardInterrupt", "Error"]


def test_an_interrupt_waits_until_an_array_is_made():
    out = alone(
        """
        import comem, os, signal
        from comem import _arrays
        c = comem.Cluster(3)
        agree = _arrays.agree

        def interrupted(*arguments):
            heard = agree(*arguments)
            os.kill(os.getpid(), signal.SIGINT)
            return heard

        _arrays.agree = interrupted
        try:
            c.zeros(10)
        except KeyboardInterrupt:
            print("interrupted")
        _arrays.agree = agree
        print(c.run(sum, c.full(10, 1.0)))
        """
    )
    assert out.splitlines()[0] == "interrupted" and out.count("10.0") == 3


INTERRUPTED = """
    import comem, contextlib, os, signal
    from comem import _wire
    c = comem.Cluster(3)
    c.run(lambda: None)
    write, said = _wire.Channel._write, []

    def interrupted(channel, data):
        # Ctrl-C at the worst moment: within a long message to a worker that has read a part of it.
        half = len(data) // 2 if len(data) > 100_000 else 0
        write(channel, data[:half])
        if half and len(said) < {times}:
            said.append("interrupted")
            os.kill(os.getpid(), signal.SIGINT)
        write(channel, data[half:])

    def use():
        {use}

    large = bytes(200_000)
    _wire.Channel._write = interrupted
    try:
        use()
    except KeyboardInterrupt:
        print(*said)
    _wire.Channel._write = write
    try:
        print(c.run(lambda: comem.rank))
    except comem.Stopped as error:
        print(error)
"""


@pytest.mark.parametrize(
    "use", ["c.run(len, large)", "c.map(len, [large] * 9, chunksize=1)", "c.map(lambda i: len(large), range(9))"]
)
def test_an_interrupt_waits_until_the_workers_are_told(use):
    assert alone(INTERRUPTED.format(use=use, times=1)).splitlines() == ["interrupted", "[0, 1, 2]"]


def test_a_second_interrupt_waits_for_nothing_and_the_cluster_is_over():
    lines = alone(INTERRUPTED.format(use="c.run(len, large)", times=2)).splitlines()
    assert lines[0] == "interrupted interrupted" and "while it told the workers" in lines[1], lines


def test_a_run_that_was_left_halfway_hangs_no_other():
    out = alone(
        """
        import comem
        c = comem.Cluster(3)
        leave = comem.Cluster._leave

        def interrupted(*_):
            raise KeyboardInterrupt

        comem.Cluster._leave = interrupted
        for end in (KeyboardInterrupt, comem.Stopped):
            try:
                c.run(int)
            except end as error:
                print(end.__name__)
            comem.Cluster._leave = leave
        """
    )
    assert out.split() == ["KeyboardInterrupt", "Stopped"]


def test_an_interrupt_while_a_map_ends_leaves_the_workers_ready():
    out = alone(
        """
        import comem, os, signal, time
        from comem import _tasks
        c = comem.Cluster(3)
        caller = os.getpid()

        def work(item):
            comem.Semaphore("settles").acquire()
            os.kill(caller, signal.SIGINT)
            time.sleep(60)

        settle = _tasks.Tasks.settle

        def settling(tasks, error):
            comem.Semaphore("settles").release()
            settle(tasks, error)

        _tasks.Tasks.settle = settling
        try:
            with c._serving(work) as tasks:
                tasks.submit([0], lambda good, result: None)
        except KeyboardInterrupt:
            print("interrupted")
        print(c.run(lambda: comem.rank))
        """
    )
    assert out.splitlines() == ["interrupted", "[0, 1, 2]"]
