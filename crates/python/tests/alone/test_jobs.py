"""Jobs as a whole: their end, whether good or not. Each test starts jobs of its own."""

import subprocess
import sys

import pytest
from jobs import lines, run


def test_a_program_alone_is_a_job_of_one_node():
    text = "import comem; a = comem.zeros(5); a += 1; comem.barrier(); print(comem.rank, comem.size, a.sum())"
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert result.stdout == "0 1 5.0\n" and result.stderr == ""


def test_importing_starts_nothing():
    text = "import comem, threading; assert not comem._core.is_running(); assert threading.active_count() == 1"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_importing_everything_starts_nothing():
    text = (
        "from comem import *\nimport comem\nassert not comem._core.is_running() and {'rank', 'size'} < set(dir(comem))"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_program_need_not_finish():
    result = run(2, "import comem; print(comem.rank)")
    assert lines(result, 0) == ["0"] and lines(result, 1) == ["1"]


def test_use_after_finish_is_an_exception():
    result = run(
        2,
        """
        import comem
        a = comem.zeros(1 << 20, home=0)
        comem.finish()
        for use in (comem.barrier, lambda: comem.zeros(3), comem.Lock(1).acquire, comem.finish):
            try:
                use()
                print("nothing happened")
            except comem.FinishedError as error:
                pass
        try:
            a.sum()
        except comem.FinishedError as error:
            print(comem._core.place.__name__, "touched", error)
        """,
    )
    assert "nothing happened" not in result.stdout
    assert any("after comem.finish()" in line for line in lines(result, 1)), result.stdout


def test_calls_that_do_not_match_are_an_exception():
    result = run(2, "import comem; comem.barrier() if comem.rank else comem.allreduce(1)", check=False)
    assert result.returncode != 0 and "MismatchError" in result.stderr, result.stderr


def test_behind_calls_that_did_not_match_there_are_no_others(tmp_path):
    result = run(
        2,
        """
        import comem, os, time
        folder = os.environ["FOLDER"]
        for call in range(3):
            try:
                comem.barrier() if comem.rank else comem.allreduce(1)
            except comem.MismatchError as error:
                print(str(error).split(" here met ")[0])
        # A node that hears of the other's end first knows of nothing else.
        open(f"{folder}/{comem.rank}", "w").close()
        while not os.path.exists(f"{folder}/{1 - comem.rank}"):
            time.sleep(0.01)
        """,
        env={"FOLDER": str(tmp_path)},
        check=False,
    )
    assert result.returncode == 2, result
    for rank, what in enumerate(("a reduction", "a barrier")):
        assert lines(result, rank) == [what] + 2 * [f"no collective call works any more since {what}"], result.stdout
    assert "Traceback" not in result.stderr and "comem: MismatchError: no collective call" in result.stderr, (
        result.stderr
    )


def test_a_program_whose_end_fails_does_not_end_well():
    text = "import comem\ntry: comem.allreduce(1) if comem.rank else comem.barrier()\nexcept comem.Error: pass"
    for _ in range(3):
        result = run(2, text, check=False)
        assert result.returncode == 2 and "MismatchError" in result.stderr, result


def test_a_destructor_that_touches_shared_memory_when_the_interpreter_ends_gets_an_exception():
    text = """
        import comem
        a = comem.zeros(5000, home=0)
        comem.barrier()
        if comem.rank == 0:
            a[:] = 2
        class Holder:
            def __del__(self):
                print("sees", a[0])
                a[1] = 3
        keep = Holder()
        keep.itself = keep
        """
    result = run(2, text)
    assert "panicked" not in result.stderr, result
    assert lines(result, 0) == ["sees 2.0"] and "FinishedError: shared memory was used" in result.stderr, result


def test_what_was_sent_again_is_counted_once_however_often_statistics_are_asked_for():
    text = """
        import comem
        for _ in range(60):
            comem.barrier()
            with comem.Lock(1):
                pass
        counts = [comem.stats()["retransmissions"] for _ in range(4)]
        assert 0 < counts[0] <= counts[3] < 2 * counts[0], counts
        """
    run(2, text, env={"COMEM_FAULTS": "drop=20%,seed=3", "COMEM_BACKBONE": "udp"})


def test_whoever_is_asked_where_it_waits_names_locks_as_the_program_does():
    text = """
        import comem, os, signal, threading, time
        held = comem.Lock("rows")
        held.acquire()
        def ask():
            for _ in range(10):
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.1)
            comem.Semaphore("go on").release()
        threading.Thread(target=ask).start()
        comem.Semaphore("go on").acquire()
        held.release()
        """
    result = run(1, text)
    assert "for semaphore 'go on' to be posted" in result.stderr and "holds lock 'rows'" in result.stderr, result.stderr


def test_what_comes_to_a_node_alone_does_no_harm():
    text = """
        import comem, os, socket, threading, time
        comem.start()
        paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        inodes = {os.readlink(path)[8:-1] for path in paths if os.path.islink(path)}
        lines = [line.split() for line in open("/proc/self/net/udp")][1:]
        ports = [int(line[1].split(":")[1], 16) for line in lines if line[9] in inodes]
        done = comem.Semaphore(1)
        def send():
            for _ in range(50):
                for port in ports:
                    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"garbage", ("127.0.0.1", port))
                time.sleep(0.002)
            done.release()
        threading.Thread(target=send).start()
        done.acquire()
        print(len(ports) > 0)
        """
    assert lines(run(1, text), 0) == ["True"]


@pytest.mark.parametrize("options", [("--engine", "direct"), ("--detector", "inline")])
@pytest.mark.parametrize("nodes", [1, 2])
def test_lines_are_refused_with_what_to_do_since_python_has_no_checks(options, nodes):
    unnamed = {"COMEM_ENGINE": ""}
    result = run(nodes, "import comem\na = comem.zeros(4)\nprint('went on')", *options, env=unnamed, check=False)
    assert result.returncode == 1 and "went on" not in result.stdout, result.stdout + result.stderr
    assert "StartError: " in result.stderr and "as programs in Fortran, Python and Rust are" in result.stderr
    assert "--engine hlrc, scope, lrc, multicast, msi or hardware, without --detector inline" in result.stderr
    caught = "import comem\ntry:\n    comem.zeros(4)\nexcept comem.StartError as error:\n    raise SystemExit(3)"
    assert run(nodes, caught, *options, env=unnamed, check=False).returncode == 3


@pytest.mark.parametrize("backbone", ["shm", "udp"])
@pytest.mark.parametrize("nodes", [2, 4])
def test_under_direct_arrays_that_name_an_engine_of_pages_work(nodes, backbone):
    text = """
        import comem
        try:
            comem.zeros(4)
        except comem.StartError as error:
            refused = "memory under the engine direct" in str(error)
        a = comem.zeros((comem.size, 1000), engine="msi")
        lock = comem.Lock("sum")
        for _ in range(20):
            with lock:
                a[0] += comem.rank + 1
        comem.barrier()
        print(refused, a[0].sum(), a[1:].sum(), comem.allreduce(comem.rank + 1))
        """
    result = run(nodes, text, "--engine", "direct", "--backbone", backbone)
    total = nodes * (nodes + 1) // 2
    assert [lines(result, node) for node in range(nodes)] == [[f"True {20000 * total:.1f} 0.0 {total}"]] * nodes


def test_a_node_that_fails_ends_the_job_with_its_traceback():
    result = run(2, "import comem\nif comem.rank: 1 / 0\ncomem.barrier()", check=False)
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr and "NodeLost: node 1" in result.stderr


LOST = """
import comem, os, time
import numpy as np
a = comem.zeros(1 << 20, home=1)
if comem.rank == 1:
    a += 1
peer = comem.allreduce(os.getpid() * comem.rank)
def has_ended():
    # Who has not been waited for yet is a zombie.
    try:
        return open(f"/proc/{peer}/stat").read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
def is_known():
    # It has ended, and so long ago that every node has heard of it.
    while not has_ended():
        time.sleep(0.01)
    time.sleep(0.8)
comem.barrier()
if comem.rank == 1:
    comem.Semaphore("ready").acquire()
    time.sleep(0.1)
    os._exit(9)
comem.Semaphore("ready").release()
WAIT
start = time.monotonic()
try:
    USE
    print("nothing happened")
except comem.NodeLost as error:
    # Silence alone would tell after ten seconds.
    print(error.node, time.monotonic() - start < 8, error)
try:
    comem.zeros(5)
except comem.NodeLost as error:
    print("still", error.node)
time.sleep(2.5)
print("usable", np.arange(5).sum())
"""


@pytest.mark.parametrize(
    ("use", "wait"),
    [
        ("comem.barrier()", ""),
        ("comem.Semaphore(1).acquire()", ""),
        ("total = a.sum(); print(total)", "is_known()"),
        ("a.fill(1)", "is_known()"),
    ],
    ids=["barrier", "semaphore", "load", "store"],
)
def test_a_lost_node_is_an_exception_and_the_interpreter_goes_on(use, wait):
    result = run(2, LOST.replace("USE", use).replace("WAIT", wait), check=False)
    said = lines(result, 0)
    assert said[0].startswith("1 True node 1 (host ") and "the job cannot go on" in said[0], result
    assert said[1:] == ["still 1", "usable 10"], result
    assert result.returncode == 9


@pytest.mark.parametrize(
    "end",
    ["", "time.sleep(0.8)", "try:\n    comem.barrier()\nexcept comem.NodeLost:\n    sys.exit(0)"],
    ids=["at once", "later", "that is caught"],
)
def test_a_job_that_lost_a_node_does_not_end_well(end):
    # Asked afterwards, the rank would be an exception too where the other node has ended by then.
    text = f"import comem, os, sys, time\nrank = comem.rank\ncomem.barrier()\nif rank: os._exit(0)\n{end}"
    result = run(2, text, check=False)
    assert result.returncode == 4, result
    assert result.stderr.count("comem.finish() first") == 1, result


def test_a_lost_node_reaches_other_threads_too():
    result = run(
        2,
        """
        import comem, os, threading, time
        a = comem.zeros(1 << 20, home=1)
        peer = comem.allreduce(os.getpid() * comem.rank)
        def has_ended():
            try:
                return open(f"/proc/{peer}/stat").read().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                return True
        if comem.rank == 1:
            # Not before the other has left the barrier too.
            comem.Semaphore("ready").acquire()
            os._exit(9)
        def work():
            comem.Semaphore("ready").release()
            while not has_ended():
                time.sleep(0.01)
            time.sleep(1)
            try:
                a.sum()
                for _ in range(100):
                    time.sleep(0.01)
                print("nothing happened")
            except comem.NodeLost as error:
                print("thread", error.node, error)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        check=False,
    )
    assert lines(result, 0)[0].startswith("thread 1 node 1"), result


INTERRUPT = """
import comem, os, signal, threading, time
a = comem.zeros(1 << 20, home=1)
comem.barrier()
def interrupt():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
def stay():
    while not os.path.exists(os.environ["COMEM_TEST_DONE"]):
        time.sleep(0.02)
def stopped(pid):
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
if comem.rank == 0:
    start = time.monotonic()
    threading.Thread(target=interrupt).start()
    try:
        WAIT
        print("nothing happened")
    except KeyboardInterrupt:
        print("interrupted", 0.5 <= time.monotonic() - start < 20)
    open(os.environ["COMEM_TEST_DONE"], "w").close()
else:
    PEER
"""


@pytest.mark.parametrize(
    ("wait", "peer"),
    [
        ("comem.barrier()", "stay()"),
        ("comem.Semaphore(5).acquire()", "stay()"),
        (
            "comem.Semaphore(6).acquire(); comem.Lock(5).acquire()",
            "comem.Lock(5).acquire(); comem.Semaphore(6).release(); stay()",
        ),
        ("stopped(comem_peer); a.sum(); time.sleep(0.01)", "os.kill(os.getpid(), signal.SIGSTOP)"),
    ],
    ids=["barrier", "semaphore", "lock", "page"],
)
def test_an_interrupt_ends_a_wait(wait, peer, tmp_path):
    # A stopped node cannot be waited for: the launcher's end of the job takes it along.
    text = INTERRUPT.replace("WAIT", wait).replace("PEER", peer)
    if "SIGSTOP" in peer:
        text += "\nif comem.rank == 0:\n    os.kill(comem_peer, signal.SIGKILL)"
        text = text.replace("comem.barrier()\ndef", "comem_peer = comem.allreduce(os.getpid() * comem.rank)\ndef", 1)
    result = run(2, text, check=False, env={"COMEM_TEST_DONE": str(tmp_path / "done")})
    assert lines(result, 0) == ["interrupted True"], result


def test_signal_handlers_run_while_a_thread_waits(tmp_path):
    result = run(
        2,
        """
        import comem, os, signal, threading, time
        comem.start()
        done = os.environ["COMEM_TEST_DONE"]
        signal.signal(signal.SIGUSR2, lambda *_: (print("handled", comem.rank), open(done, "w").close()))
        if comem.rank == 0:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR2)).start()
        else:
            while not os.path.exists(done):
                time.sleep(0.02)
        comem.barrier()
        print("passed")
        """,
        env={"COMEM_TEST_DONE": str(tmp_path / "done")},
    )
    assert lines(result, 0) == ["handled 0", "passed"]


@pytest.mark.parametrize("before", [True, False])
def test_faulthandler_may_come_and_go(before):
    result = run(
        2,
        f"""
        import faulthandler
        if {before}: faulthandler.enable()
        import comem
        a = comem.zeros(1 << 20, home="block")
        comem.block(a)[...] = 1
        faulthandler.enable()
        comem.barrier()
        total = a.sum()
        faulthandler.disable()
        comem.barrier()
        a[comem.split(len(a))] += 1
        comem.barrier()
        faulthandler.enable(); faulthandler.disable(); faulthandler.enable()
        comem.barrier()
        print(total, a.sum())
        """,
    )
    assert lines(result, 0) == lines(result, 1) == [f"{1 << 20}.0 {2 << 20}.0"]


def test_faulthandler_still_reports_a_crash():
    result = run(
        2,
        """
        import faulthandler, ctypes
        faulthandler.enable()
        import comem
        a = comem.zeros(10)
        comem.barrier()
        if comem.rank: ctypes.string_at(8)
        comem.barrier()
        """,
        check=False,
    )
    assert "Fatal Python error: Segmentation fault" in result.stderr, result.stderr


FORKED = """
import comem, multiprocessing, os
a = comem.zeros(100_000, home=0)
comem.barrier()
def work():
    try:
        print("sum", a.sum())
    except comem.ForkError as error:
        print("array:", error)
    for call in (comem.barrier, comem.Lock(1).acquire, lambda: comem.zeros(3)):
        try:
            call()
            print("nothing happened")
        except comem.ForkError:
            pass
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
comem.barrier()
print("parent", a.sum())
"""


def test_a_forked_child_gets_exceptions_and_leaves_the_job_alone():
    result = run(2, FORKED)
    for node in (0, 1):
        said = lines(result, node)
        assert any(line.startswith("array: this process was made by fork") for line in said), result
        assert "parent 0.0" in said and "nothing happened" not in said


def test_a_spawned_helper_gets_a_copy(tmp_path):
    program = tmp_path / "spawn.py"
    program.write_text(
        "import comem, multiprocessing\n"
        "def total(a): return float(a.sum())\n"
        "if __name__ == '__main__':\n"
        "    a = comem.full(1000, 2.0)\n"
        "    with multiprocessing.get_context('spawn').Pool(1, ) as pool:\n"
        "        print(pool.apply(total, (a,)))\n"
    )
    command = [sys.executable, "-m", "comem", "run", "-n", "2", sys.executable, str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert lines(result, 0) == lines(result, 1) == ["2000.0"], result


def test_a_program_that_a_node_starts_is_told_that_it_is_none():
    result = run(
        2,
        """
        import comem, os, subprocess, sys
        comem.start()
        program = [sys.executable, "-c", "import comem; print(comem.rank, comem.size)"]
        print(subprocess.run(program, capture_output=True, text=True).stderr.splitlines()[-1])
        clean = {name: value for name, value in os.environ.items() if not name.startswith("COMEM_")}
        print(subprocess.run(program, capture_output=True, text=True, env=clean).stdout)
        """,
    )
    for node in range(2):
        refused, alone = lines(result, node)[:2]
        assert "is no node itself; start it without the variables COMEM_*" in refused and alone == "0 1", result


def test_a_thread_too_many_is_refused():
    result = run(
        2,
        """
        import comem, threading
        comem.start()
        stop, errors = threading.Event(), []
        def work():
            try:
                with comem.RWLock("all").read():
                    stop.wait()
            except comem.ThreadError as error:
                errors.append(str(error))
        threads = [threading.Thread(target=work) for _ in range(20)]
        [t.start() for t in threads]
        while sum(t.is_alive() for t in threads) > 15: pass
        stop.set()
        [t.join() for t in threads]
        print(len(errors), errors[0])
        """,
    )
    assert lines(result, 0)[0].startswith("5 a thread uses shared memory, but all 16 places"), result


def test_a_thread_too_many_touches_memory_all_the_same():
    result = run(
        2,
        """
        import comem, threading
        a, n = comem.full(100_000, 1.0), comem.zeros(1)
        comem.barrier()
        if comem.rank == 1:
            stop, seated = threading.Event(), threading.Semaphore(0)
            def sit():
                comem.fetch_add(n, 0)
                seated.release()
                stop.wait()
            def touch():
                print(a.sum())
                try:
                    comem.fetch_add(n, 0)
                except comem.ThreadError as error:
                    print(error)
            threads = [threading.Thread(target=sit) for _ in range(15)]
            [t.start() for t in threads]
            [seated.acquire() for _ in range(15)]
            late = threading.Thread(target=touch)
            late.start()
            late.join()
            stop.set()
        comem.barrier()
        """,
    )
    said = lines(result, 1)
    assert said[0] == "100000.0" and "all 16 places of this node are taken" in said[1] and len(said) == 2, result


def test_daemon_threads_that_wait_do_not_keep_the_interpreter():
    result = run(
        2,
        """
        import comem, threading, time
        comem.barrier()
        for name in range(4):
            threading.Thread(target=comem.Semaphore(name).acquire, daemon=True).start()
        time.sleep(0.2)
        print("done")
        """,
    )
    assert lines(result, 0) == ["done"] and lines(result, 1) == ["done"]
