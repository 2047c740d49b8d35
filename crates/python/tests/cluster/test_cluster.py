"""comem.Cluster, used by one interpreter as from a notebook."""

import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time

import comem
import numpy as np
import pytest
from clusters import NODES, alone

# Running


def test_every_node_runs_the_function_and_the_caller_is_node_zero(c):
    pids = c.run(lambda: (comem.rank, comem.size, os.getpid()))
    assert [pid[:2] for pid in pids] == [(node, NODES) for node in range(NODES)]
    assert pids[0][2] == os.getpid() and len({pid for _, _, pid in pids}) == NODES


def test_arguments_go_to_every_node(c):
    assert c.run(lambda a, *, b: a + b, 1, b=[2].__len__()) == [2] * NODES


def test_what_the_caller_wrote_is_seen_and_what_workers_wrote_too(c):
    a = c.zeros((NODES * 600, 512))

    def step(a):
        assert (a == a[0, 0]).all()
        seen = a[0, 0]
        comem.barrier()
        comem.block(a)[...] = seen + 1
        return seen

    for turn in range(4):
        a += 1
        assert c.run(step, a) == [2 * turn + 1] * NODES
        assert (a == 2 * turn + 2).all()


def test_a_function_may_use_everything_that_a_script_may(c):
    def work():
        mine = comem.zeros(10)
        with comem.Lock("once"):
            mine[0] += 1
        comem.barrier()
        return mine[0], comem.allreduce(comem.rank)

    assert c.run(work) == [(NODES, sum(range(NODES)))] * NODES


def test_views_go_and_come_by_reference(c):
    a = c.zeros((40, 30), dtype=np.int32)
    for view in (a, a[3:9], a[::-1, ::2], a.T, a[5], a[2:2], a.reshape(-1)[7::3], a[4:5, 6]):
        came = c.run(lambda view: view, view)[1]
        assert came.__array_interface__ == view.__array_interface__
    c.run(lambda v: v.fill(7) if comem.rank == 1 else None, a[::-1, ::2])
    assert a.sum() == 7 * 40 * 15
    assert not c.run(lambda v: v, c.freeze(a))[1].flags.writeable


def test_windows_over_an_array_go_by_reference(c):
    a = c.array(np.arange(10.0))
    windows = np.lib.stride_tricks.sliding_window_view(a, 3)
    assert c.run(lambda windows: (comem.is_shared(windows), float(windows.sum())), windows) == [(True, 108.0)] * NODES


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path])
def test_files_are_those_of_the_callers_directory(c, tmp_path, monkeypatch, kind):
    for turn in range(2):
        (tmp_path / str(turn)).mkdir()
        np.save(tmp_path / str(turn) / "a.npy", np.full(12, turn))
        monkeypatch.chdir(tmp_path / str(turn))
        # As where the cluster was started here.
        c.run(lambda path: os.chdir(path) if comem.rank else None, str(tmp_path / "0"))
        assert c.open_npy(kind("a.npy")).tolist() == [turn] * 12
    c.run(lambda path: os.chdir(path) if comem.rank else None, "/")
    for wrong in ("missing.npy", 3.5, None):
        with pytest.raises(comem.ArgumentError, match="cannot be read"):
            c.open_npy(wrong)


def test_an_array_that_a_worker_keeps_is_not_given_back(c):
    def keep(a):
        comem.kept = a

    def look():
        return float(comem.kept.sum()) if comem.rank == 1 else None

    c.run(keep, c.full(100_000, 3.0))
    comem.kept = None
    for _ in range(3):
        c.zeros(100_000)[:] = 5
    assert c.run(look)[1] == 300_000


def test_closures_refer_to_shared_arrays(c):
    a = c.array(np.arange(10.0))

    def put():
        if comem.rank == 2:
            a[3] = 30

    c.run(put)
    assert a[3] == 30


def test_what_workers_print_is_shown_before_run_returns(c, capfd):
    c.run(lambda: print("I am", comem.rank) if comem.rank else None)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["[1] I am 1", "[2] I am 2"]


def test_what_workers_print_without_an_end_of_line_is_shown_too(c, capfd):
    c.run(lambda: print("I am", comem.rank, end="") if comem.rank else None)
    assert sorted(capfd.readouterr().out.splitlines()) == ["[1] I am 1", "[2] I am 2"]


class Grid(np.ndarray):
    pass


class Unit(np.ndarray):
    def __reduce__(self):
        return list, ()


def test_views_of_another_class_go_by_reference_or_not_at_all(c):
    a = c.zeros(10)

    def put(x):
        if comem.rank == 1:
            x[1] += 7
        return type(x).__name__

    for kind in (Grid, np.recarray):
        assert c.run(put, a.view(kind))[1] == kind.__name__
    assert a[1] == 14
    for view, advice in ((np.ma.masked_array(a, a > 5), r"\.mask"), (a.view(Unit), "numpy.asarray")):
        with pytest.raises(comem.ArgumentError, match=advice):
            c.run(put, view)
        with pytest.raises(comem.ArgumentError, match=advice):
            c.run(lambda view=[view]: None)


def test_256_mib_are_handed_over_by_reference(c):
    a = c.zeros(256 << 20, dtype=np.uint8)
    a[::4096] = 1
    before = [one["bytes_sent"] for one in c.stats()]
    c.run(lambda a: a.shape, a)
    after = [one["bytes_sent"] for one in c.stats()]
    # Data moves when touched; what moves now is that it was written.
    assert sum(after) - sum(before) < 1 << 20


# Exceptions


def test_an_exception_comes_with_its_traceback(c):
    def inner():
        raise KeyError("lost key")

    def fails():
        if comem.rank == 1:
            inner()

    with pytest.raises(KeyError, match="lost key") as caught:
        c.run(fails)
    assert "On node 1" in str(caught.value.__cause__) and "in inner" in str(caught.value.__cause__)


@pytest.mark.parametrize("culprit", range(NODES))
def test_an_exception_frees_those_who_wait_for_the_one_that_failed(c, culprit):
    def fails():
        if comem.rank == culprit:
            raise ValueError("on one node")
        comem.allreduce(1)
        comem.zeros(100)

    with pytest.raises(ValueError, match="on one node"):
        c.run(fails)
    assert c.run(lambda: comem.allreduce(1)) == [NODES] * NODES


def test_a_node_that_leaves_early_is_an_error_of_those_who_wait_for_it(c):
    with pytest.raises(comem.MismatchError):
        c.run(lambda: comem.barrier() if comem.rank else None)
    assert c.run(lambda: comem.rank) == list(range(NODES))


def test_what_was_written_before_an_exception_is_seen(c):
    a = c.zeros(NODES * 512)

    def fails(a):
        comem.block(a)[...] = 1
        if comem.rank == 2:
            raise ValueError
        comem.zeros(3)

    with pytest.raises(ValueError):
        c.run(fails, a)
    assert (a == 1).all()


def test_an_exception_that_cannot_be_pickled_comes_as_text(c):
    def fails():
        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__(f"{one} and {two}")

        if comem.rank:
            raise Odd(1, 2)

    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        c.run(fails)


def test_what_cannot_be_sent_is_refused(c):
    with pytest.raises(comem.ArgumentError, match="cannot be sent"):
        c.run(lambda x: x, threading.Lock())
    with pytest.raises(comem.ArgumentError, match="cannot be sent to the workers: a Cluster cannot be"):
        c.run(lambda: c.size)
    with pytest.raises(comem.ArgumentError, match="cannot be sent to the caller"):
        c.run(lambda: threading.Lock() if comem.rank else None)
    with pytest.raises(comem.ArgumentError, match="cannot be sent"):
        c.map(lambda x: x, [threading.Lock() for _ in range(50)])
    assert c.run(lambda: 1) == [1] * NODES


def test_what_cannot_be_sent_nor_shown_is_refused(c):
    class Speechless:
        def __reduce__(self):
            raise TypeError("no way")

        def __repr__(self):
            raise RuntimeError("no words")

    for call in (lambda: c.run(print, Speechless()), lambda: c.run(Speechless)):
        with pytest.raises(comem.ArgumentError, match="object at .*cannot be sent.*no way"):
            call()


def test_what_is_nested_too_deep_is_refused(c):
    def nest():
        x = []
        for _ in range(100_000):
            x = [x]
        return x

    for call in (lambda: c.run(print, nest()), lambda: c.run(nest)):
        with pytest.raises(comem.ArgumentError, match="cannot be sent"):
            call()


def test_what_a_reloaded_module_defines_goes_by_value_where_that_is_asked_for(c, tmp_path, monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle", reason="SKIP: Python clusters: cloudpickle is not installed")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "comem_reloaded.py"
    file.write_text("def word(): return 'old'\ndef say(): return word()")
    module = importlib.import_module("comem_reloaded")
    cloudpickle.register_pickle_by_value(module)
    try:
        assert c.run(module.say) == ["old"] * NODES
        file.write_text("def word(): return 'quite new'\ndef say(): return word()")
        importlib.reload(module)
        assert c.run(module.say) == c.run(lambda: module.say()) == ["quite new"] * NODES
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_without_cloudpickle_functions_must_be_importable(c, monkeypatch):
    from comem import _wire

    monkeypatch.setattr(_wire, "_clever", None)
    monkeypatch.setattr(_wire, "_cloudpickle", lambda: None)
    here = type(test_nonsense_is_an_exception_and_the_cluster_goes_on)(compile("0", "", "eval"), {}, "here")
    here.__module__ = "__main__"
    for function in (lambda: 1, here):
        with pytest.raises(comem.ArgumentError, match="install cloudpickle"):
            c.run(function)
    a = c.zeros(10)
    assert c.run(np.sum, a) == [0.0] * NODES


def test_a_lock_that_is_kept_is_an_exception_and_free_again(c):
    def keep(_=None):
        comem.Lock("kept").acquire()

    for work in (
        lambda: c.run(lambda: keep() if comem.rank == 1 else None),
        lambda: c.run(lambda: comem.rank or keep()),
        lambda: c.map(keep, [1]),
    ):
        with pytest.raises(comem.MisuseError, match=r"comem.Lock\('kept'\) held"):
            work()
        with comem.Lock("kept"):
            assert c.run(lambda: comem.rank) == list(range(NODES))


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("call", ["run(part)", "map(part, range(3), chunksize=1)"])
def test_an_exception_is_said_while_others_wait_and_is_behind_their_interruption(call, culprit):
    out = alone(
        f"""
        import comem, os, signal, sys, threading
        sys.stderr = sys.stdout
        c = comem.Cluster(2)
        def part(_=None):
            comem.Semaphore("both").release()
            if comem.rank == {culprit}:
                for _ in range(2):
                    comem.Semaphore("both").acquire()
                raise ValueError("no data")
            comem.Semaphore("never").acquire()
        threading.Timer(1.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            c.{call}
        except BaseException as error:
            chain = [error]
            while chain[-1].__cause__ or chain[-1].__context__:
                chain.append(chain[-1].__cause__ or chain[-1].__context__)
            print(any(isinstance(error, ValueError) for error in chain))
        """
    )
    said, raised = out.split("ValueError: no data\n", 1)
    assert "others are not at its end" in said and f"On node {culprit}:" in said, out
    assert raised.splitlines()[-1] == "True", out


# Maps


def test_a_map_gives_results_in_order(c):
    assert c.map(lambda i: i * i, range(1000)) == [i * i for i in range(1000)]
    assert c.map(abs, []) == []
    assert c.map(str, iter("abc"), chunksize=2) == ["a", "b", "c"]


def test_every_node_has_its_part_of_a_map(c):
    nodes = c.map(lambda i: (time.sleep(0.01), comem.rank)[1], range(90), chunksize=1)
    assert set(nodes) == set(range(NODES))


def test_a_map_sees_and_shows_what_is_written(c):
    a = c.array(np.arange(5000.0).reshape(50, 100))

    def double(i):
        a[i] *= 2
        return float(a[i].sum())

    assert c.map(double, range(50)) == (2 * np.arange(5000.0).reshape(50, 100)).sum(axis=1).tolist()
    assert (a == 2 * np.arange(5000.0).reshape(50, 100)).all()


def test_large_items_and_results_pass(c):
    items = [np.full(1 << 17, i) for i in range(12)]
    results = c.map(lambda x: x + 1, items, chunksize=1)
    assert all((r == i + 1).all() for i, r in enumerate(results))


def test_the_first_exception_of_a_map_comes(c):
    with pytest.raises(ZeroDivisionError):
        c.map(lambda i: 1 // (i - 17), range(1000))
    assert c.map(abs, [-1]) == [1]


def test_calls_of_all_nodes_together_are_refused_within_a_map():
    out = alone(
        """
        import comem
        with comem.Cluster(3) as c:
            for call in (comem.barrier, lambda: comem.allreduce(1), lambda: comem.zeros(3)):
                try:
                    c.map(lambda i: call(), range(12), chunksize=1)
                except comem.MisuseError as error:
                    print("Cluster.run" in str(error))
            print(c.map(abs, [-1]), c.run(lambda: comem.allreduce(1)), len(c.zeros(3)))
        """
    )
    assert out.split("\n") == ["True"] * 3 + ["[1] [3, 3, 3] 3", ""]


def test_a_map_shows_its_progress(c, capsys):
    pytest.importorskip("tqdm", reason="SKIP: Python clusters: tqdm is not installed")
    c.map(lambda i: i, range(50), progress=True)
    assert "50/50" in capsys.readouterr().err


def test_a_map_looks_at_each_chunk_a_few_times():
    from comem._tasks import Tasks

    looks = []

    class Chunk(list):
        def __len__(self):
            looks.append(self)
            return super().__len__()

    class Nobody:
        workers, lost = (), None
        check = give_up_halfway = staticmethod(lambda: None)

    done = []
    assert Tasks(Nobody(), abs).map([Chunk([-1, -2]) for _ in range(300)], done.append) == [[1, 2]] * 300
    assert done[-1] == 600 and done == sorted(done) and len(looks) < 3000


def test_a_map_ends_when_one_chunk_fails_while_another_node_is_done_with_its():
    from comem._tasks import Tasks

    class Nobody:
        workers, lost = (), None
        check = give_up_halfway = staticmethod(lambda: None)

    elsewhere, raised = [], []

    class Waiting(list):
        def __len__(self):
            if elsewhere and failed.is_set():
                answer = threading.Thread(target=elsewhere.pop()[1], args=(True, [0]))
                answer.start()
                answer.join(1)
            return super().__len__()

    def fail(item):
        elsewhere.append(tasks.take())
        failed.set()
        raise ValueError(item)

    def work():
        try:
            tasks.map([[1], [2], [3]], lambda done: None)
        except ValueError as error:
            raised.append(error)

    failed, tasks = threading.Event(), Tasks(Nobody(), fail)
    tasks._waiting = Waiting()
    mapping = threading.Thread(target=work, daemon=True)
    mapping.start()
    mapping.join(5)
    assert not mapping.is_alive() and len(raised) == 1


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: c.zeros(-1), comem.ArgumentError, "negative"),
        (lambda c: c.zeros(3, dtype=object), comem.ArgumentError, "references to Python objects"),
        (lambda c: c.array([{}]), comem.ArgumentError, "references to Python objects"),
        (lambda c: c.array([1, [2]]), ValueError, "inhomogeneous"),
        (lambda c: c.zeros(1 << 50), comem.HeapFullError, "no room"),
        (lambda c: c.zeros(1 << 70), comem.ArgumentError, "larger than any"),
        (lambda c: c.zeros(3, order="X"), comem.ArgumentError, "order"),
        (lambda c: c.zeros(3, home="nowhere"), comem.ArgumentError, "home"),
        (lambda c: c.open_npy("/nowhere.npy"), comem.ArgumentError, "cannot be read"),
        (lambda c: c.freeze(np.zeros(3)), comem.ArgumentError, "no shared array"),
        (lambda c: c.map(abs, [1], chunksize=0), comem.ArgumentError, "chunks"),
        (lambda c: c.map(abs, [1], chunksize=1.5), comem.ArgumentError, "chunks"),
        (lambda c: c.run(c.run, int), comem.ArgumentError, "cannot be sent"),
        (lambda c: comem.Cluster(2), comem.MisuseError, "another"),
        (lambda c: comem.Cluster(0), comem.ArgumentError, "0 nodes"),
        (lambda c: comem.Cluster(np.True_), comem.ArgumentError, "nodes cannot be"),
        (lambda c: comem.Cluster(np.int64(NODES)), comem.MisuseError, "another"),
        (lambda c: comem.Cluster(hosts=["-x"]), comem.ArgumentError, "names no host"),
        (lambda c: comem.Cluster(hosts="localhost"), comem.ArgumentError, "no list of hosts"),
        (lambda c: comem.Cluster(hosts=[3]), comem.ArgumentError, "no list of hosts"),
        (lambda c: comem.Cluster(5, hosts=["localhost:3"]), comem.ArgumentError, "leave nodes out"),
        (lambda c: comem.barrier(), comem.MisuseError, "Cluster.run"),
        (lambda c: comem.zeros(3), comem.MisuseError, "Cluster.zeros"),
        (lambda c: comem.finish(), comem.MisuseError, "Cluster.run"),
        (lambda c: c.run(comem.finish), comem.MisuseError, "Cluster.close"),
    ],
)
def test_nonsense_is_an_exception_and_the_cluster_goes_on(c, call, error, words):
    with pytest.raises(error, match=words):
        call(c)
    assert c.run(lambda: comem.allreduce(1)) == [NODES] * NODES


def test_shared_arrays_are_not_sent_to_other_processes(c):
    import multiprocessing

    a = c.zeros(10)
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    with pytest.raises(comem.SendError, match="outside of the job"):
        queue.put(a)
    queue.put(a.copy())
    assert (queue.get() == a).all()


def test_a_reference_of_another_job_is_refused(c):
    from comem import _wire

    data = _wire.dumps(c.zeros(10))
    text = f"import comem\ntry:\n    comem._wire.loads({data!r})\nexcept comem.SendError as error:\n    print(error)"
    assert "no node of its job" in alone(text)


def test_a_child_made_by_fork_gets_an_exception(c):
    a = c.zeros(10)
    child = os.fork()
    if child == 0:
        try:
            c.run(int)
        except comem.ForkError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert c.run(lambda a: len(a), a) == [10] * NODES


# Other libraries


def test_joblib_runs_tasks_on_the_nodes(c):
    joblib = pytest.importorskip("joblib", reason="SKIP: Python clusters: joblib is not installed")
    comem.register_joblib()
    a = c.array(np.arange(600.0).reshape(100, 6))

    def scale(column, by):
        column *= by
        time.sleep(0.005)
        return comem.rank, float(column.sum())

    with joblib.parallel_backend("comem"):
        results = joblib.Parallel()(joblib.delayed(scale)(a[:, i % 6], 1 if i > 5 else 2) for i in range(60))
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(lambda i: 1 // i)(i) for i in range(20))
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-i) for i in range(9)) == list(range(9))
    assert {node for node, _ in results} == set(range(NODES))
    assert (a == 2 * np.arange(600.0).reshape(100, 6)).all()


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_task_of_joblib_that_leaves_the_interpreter_raises_in_the_caller(leaver):
    pytest.importorskip("joblib", reason="SKIP: Python clusters: joblib is not installed")
    out = alone(
        f"""
        import comem, joblib, sys, time
        def task(i):
            time.sleep(0.01)
            return sys.exit(4) if comem.rank == {leaver} else i
        comem.register_joblib()
        with comem.Cluster(2) as c, joblib.parallel_backend("comem"):
            try:
                joblib.Parallel(batch_size=1)(joblib.delayed(task)(i) for i in range(50))
            except SystemExit as error:
                print(error)
            print(joblib.Parallel()(joblib.delayed(abs)(-i) for i in range(3)))
        """
    )
    assert out == "4\n[0, 1, 2]\n"


def test_statistics_tell_what_was_computed_and_not_what_was_idle(c):
    def computed():
        return [node["time_us"]["compute"] for node in c.stats()]

    before = computed()
    time.sleep(0.5)
    idle = [after - one for after, one in zip(computed(), before)]
    before = computed()
    c.run(lambda: sum(range(10_000_000)))
    busy = [after - one for after, one in zip(computed(), before)]
    # Microseconds; of half a second that was slept through, nobody computed the larger part.
    assert max(idle) < 250_000 and min(busy) > 10_000, (idle, busy)


def test_a_picture_of_what_happened(c, tmp_path):
    pytest.importorskip("matplotlib", reason="SKIP: Python clusters: matplotlib is not installed")
    a = c.zeros(100_000, name="numbers")
    c.run(lambda a: comem.block(a).fill(1), a)
    a.sum()
    picture = c.plot()
    picture.savefig(tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 10_000
    # A notebook looks for this.
    assert picture._repr_png_().startswith(b"\x89PNG") and len(picture._repr_png_()) > 10_000
    from comem._plot import arrays_of

    about = next(one for one in arrays_of(c.stats()) if one["label"] == "numbers")
    assert about["pages_fetched"][0] > 0 and sum(about["pages_owned"]) >= 100_000 * 8 // 4096


def test_a_notebook_shows_clusters_and_pictures():
    pytest.importorskip("matplotlib", reason="SKIP: Python clusters: matplotlib is not installed")
    pytest.importorskip("IPython", reason="SKIP: Python clusters: ipython is not installed")
    out = alone(
        """
        import comem
        from IPython.core.formatters import DisplayFormatter
        show = DisplayFormatter().format
        with comem.Cluster(2, engine="hlrc", cache="64M") as c:
            picture, page = show(c.plot())[0]["image/png"], show(c)[0]["text/html"]
            print(len(picture) > 10_000, page.count("<tr>"))
            print("Cluster of 2 nodes<" in page, "cache=64M, engine=hlrc" in page)
            print(str(c._team.workers[0].pid) in page, "this process" in page, "worker" in page)
        print("2 nodes, closed" in show(c)[0]["text/html"], "idle" in show(c)[0]["text/html"])
        with comem.Cluster(1) as d:
            print("1 node<" in show(d)[0]["text/html"], "ended" in show(c)[0]["text/html"])
        """
    )
    assert out.split("\n")[:-1] == ["True 3", "True True", "True True True", "True True", "True True"]


def test_idle_workers_use_no_processor(c):
    def used():
        return sum(os.times()[:2])

    c.run(lambda: setattr(comem, "used", sum(os.times()[:2])))
    time.sleep(1.0)
    spent = c.run(lambda: sum(os.times()[:2]) - comem.used)[1:]
    assert max(spent) < 0.2, spent


def test_a_pickle_is_a_copy(c):
    a = c.array(np.arange(100_000.0))
    assert (pickle.loads(pickle.dumps(a)) == np.arange(100_000.0)).all()


def test_a_cluster_of_the_usual_size_has_a_node_for_each_core_that_the_process_may_use():
    core = min(os.sched_getaffinity(0))
    text = f"import os; os.sched_setaffinity(0, [{core}]); import comem; print(comem.Cluster().size)"
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert result.stdout == "1\n", result
