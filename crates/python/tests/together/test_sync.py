"""Locks, barriers, reductions. Every node runs this file, as one job."""

import threading
import time
import warnings

import numpy as np
import pytest

import comem


def test_a_lock_lets_nothing_get_lost():
    a = comem.zeros(2, dtype=np.int64)
    lock = comem.Lock("count")
    for _ in range(50):
        with lock:
            a[0] += 1
    comem.barrier()
    assert a[0] == 50 * comem.size


def test_a_lock_that_is_tried_for_is_got_once_it_is_free():
    a = comem.zeros(1, dtype=np.int64)
    lock = comem.Lock("tried")
    for _ in range(20):
        while not lock.acquire(blocking=False):
            time.sleep(0)
        a[0] += 1
        assert not lock.acquire(blocking=False), "this thread holds it"
        lock.release()
    comem.barrier()
    assert a[0] == 20 * comem.size
    if comem.rank == 0:
        lock.acquire()
    comem.barrier()
    assert not lock.acquire(blocking=False)
    comem.barrier()
    if comem.rank == 0:
        lock.release()


def test_names_and_numbers_are_locks_of_their_own():
    with comem.Lock("outer"), comem.Lock(7), comem.Lock("7"):
        with pytest.raises(comem.MisuseError, match="not reentrant"):
            comem.Lock("outer").acquire()
    with pytest.raises(comem.MisuseError, match="does not hold"):
        comem.Lock("outer").release()


def test_numbers_of_every_kind_are_names():
    with comem.Lock(np.int64(7)), pytest.raises(comem.MisuseError, match="not reentrant"):
        comem.Lock(7).acquire()
    for name in (True, np.True_, -1, 1 << 62, 2.0, None, np.array([1, 2])):
        with pytest.raises(comem.ArgumentError, match="names nothing"):
            comem.Lock(name)


def test_a_lock_is_released_by_an_exception():
    with pytest.raises(KeyError):
        with comem.Lock("x"):
            raise KeyError
    with comem.Lock("x"):
        pass


def test_a_condition_variable_wakes_who_waits():
    a = comem.zeros(1, dtype=np.int64)
    changed = comem.Condition("changed")
    if comem.rank == 0:
        with changed:
            a[0] = 5
            changed.notify_all()
    with changed:
        assert changed.wait_for(lambda: a[0] == 5)
    comem.barrier()


def test_a_semaphore_gives_what_was_put_in():
    semaphore = comem.Semaphore("tickets")
    if comem.rank == 0:
        semaphore.release(comem.size)
    semaphore.acquire()
    comem.barrier()
    assert not semaphore.acquire(blocking=False)
    comem.barrier()


def test_a_reader_writer_lock_keeps_writers_alone():
    a = comem.zeros(2, dtype=np.int64)
    lock = comem.RWLock("rw")
    for _ in range(20):
        with lock.write():
            a += 1
        with lock.read():
            assert a[0] == a[1]
    comem.barrier()
    assert a[0] == 20 * comem.size


def test_reductions_keep_shapes_and_types():
    n, everybody = comem.size, sum(range(comem.size))
    assert comem.allreduce(comem.rank) == everybody and type(comem.allreduce(1)) is int
    assert comem.allreduce(0.5) == 0.5 * n and type(comem.allreduce(0.5)) is float
    assert comem.allreduce(comem.rank, "max") == n - 1 and comem.allreduce(-comem.rank, "min") == 1 - n
    assert comem.allreduce(1j) == 1j * n
    for dtype in ("i4", "u2", "f4", "f8", "c16", "i8"):
        x = comem.allreduce(np.ones((3, 5), dtype))
        assert x.dtype == dtype and x.shape == (3, 5) and (x == n).all()
    assert comem.allreduce(np.array([True, comem.rank == 0])).tolist() == [n, 1]
    assert (comem.reduce(1, root=n - 1) == n) if comem.rank == n - 1 else (comem.reduce(1, root=n - 1) is None)


@pytest.mark.parametrize("n", [3, 3000])
def test_sums_of_whole_numbers_are_exact_or_an_exception(n):
    most = np.iinfo(np.int64).max
    assert comem.allreduce(most) == most * comem.size and comem.allreduce(-most) == -most * comem.size
    assert comem.allreduce(np.uint32(3 << 30)) == (3 << 30) * comem.size
    for dtype, fits in (
        ("i8", most // comem.size),
        ("i8", -(most // comem.size)),
        ("u1", 255 // comem.size),
        ("i2", -1),
    ):
        assert (comem.allreduce(np.full(n, fits, dtype)) == fits * comem.size).all()
    if comem.size % 2 == 0:
        assert not comem.allreduce(np.array([most, -most] * n) * (-1) ** (comem.rank % 2)).any()
    if comem.size > 1:
        for value in np.int64(most), np.int64(-most), np.uint8(200), np.int16(-32000):
            with pytest.raises(OverflowError, match=f"does not fit {value.dtype}"):
                comem.allreduce(np.array([0] * n + [value]).astype(value.dtype))
    assert comem.allreduce(np.full(n, 255, np.uint8), "max").tolist() == [255] * n
    with pytest.raises(comem.ArgumentError):
        comem.allreduce(1 << 70)


@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_large_reductions_are_those_of_numpy(op):
    rows = np.random.default_rng(1).standard_normal((comem.size, 40, 501))
    expected = {"sum": np.add, "min": np.minimum, "max": np.maximum}[op].reduce(rows, axis=0)
    assert np.allclose(comem.allreduce(rows[comem.rank], op), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize(
    "value", [[1e8, 1, -1e8], [60000, 60000, -60000], [2048, 1, 1], [1e300, 1e300, -1e300]], ids=str
)
def test_sums_of_floating_point_numbers_do_not_depend_on_how_many_they_are(monkeypatch, dtype, value):
    with np.errstate(all="ignore"):
        values = np.array(value).astype(dtype)
        expected = sum(values[node % 3].astype(complex) for node in range(comem.size))
        expected = expected.astype(dtype) if np.dtype(dtype).kind == "c" else expected.real.astype(dtype)
    monkeypatch.setattr(comem._collective, "_PIECE", 100)
    n = 3001
    mine = np.full(n, values[comem.rank % 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few, many = comem.allreduce(mine[:3]), comem.allreduce(mine)
    assert few.dtype == many.dtype == dtype
    assert np.array_equal(few, np.full(3, expected), equal_nan=True) and np.array_equal(
        many, np.full(n, few[0]), equal_nan=True
    )


@pytest.mark.parametrize("n", [512, 513])
@pytest.mark.parametrize("op", ["min", "max"])
def test_a_number_that_is_none_wins_whichever_node_has_it(op, n):
    for node in range(comem.size):
        x = np.full(n, float(comem.rank))
        if comem.rank == node:
            x[3] = np.nan
        assert np.flatnonzero(np.isnan(comem.allreduce(x, op))).tolist() == [3]


@pytest.mark.parametrize("n", [10, 10_000])
def test_broadcasts_keep_what_an_array_is_besides_its_numbers(n):
    x = np.ma.masked_array(np.arange(n), np.arange(n) % 3 == 0)
    y = comem.broadcast(x if comem.rank == 0 else None)
    assert type(y) is np.ma.MaskedArray and y.sum() == x.sum() and (y.mask == x.mask).all()


def test_broadcasts_carry_numbers_arrays_and_objects():
    root = comem.size - 1
    for x in (5, 2.5, "text", {"a": [1, 2]}, None):
        assert comem.broadcast(x if comem.rank == root else None, root) == x
    for shape in ((3,), (300, 301)):
        x = np.arange(np.prod(shape)).reshape(shape)
        assert np.array_equal(comem.broadcast(x if comem.rank == 0 else None), x)


@pytest.mark.skipif("comem.size < 2")
def test_what_cannot_be_sent_fails_on_every_node():
    with pytest.raises(comem.ArgumentError, match="cannot be pickled") as raised:
        comem.broadcast((lambda: 0) if comem.rank == 0 else None)
    assert (raised.value.__cause__ is None) == (comem.rank > 0)
    with pytest.raises(comem.ArgumentError, match="but node 1 called"):
        comem.allreduce(np.zeros(2 if comem.rank == 0 else 3))
    comem.barrier()


def test_what_is_no_count_or_lock_is_refused():
    for call in (comem.Semaphore("refused").release, comem.Condition("refused").notify):
        call(0)
        for n in (-1, 1.5):
            with pytest.raises(ValueError, match="times cannot be"):
                call(n)
    with pytest.raises(TypeError, match="no comem.Lock"):
        comem.Condition("refused", lock=threading.Lock())


def test_errors_name_locks_as_the_program_does():
    with pytest.raises(comem.MisuseError, match="lock 'nobody has it'"):
        comem.Lock("nobody has it").release()
    with pytest.raises(comem.MisuseError, match="lock 0x12, which"):
        comem.Lock(0x12).release()


def test_splits_are_as_equal_as_can_be():
    n = comem.allreduce(len(range(101)[comem.split(101)]))
    assert n == 101
    sizes = [high - low for low, high in comem._collective.parts(101)]
    assert max(sizes) - min(sizes) <= 1


def test_several_python_threads_share_a_node():
    a = comem.zeros(1 << 16, dtype=np.int64, home="cyclic")

    def work(k):
        for _ in range(20):
            with comem.Lock("threads"):
                a[0] += 1
        a[1000 + comem.rank * 4 + k] = a[50_000 + k] + k + 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    comem.barrier()
    assert a[0] == 80 * comem.size
    assert a[1000 : 1000 + 4 * comem.size].tolist() == [1, 2, 3, 4] * comem.size


def test_threads_that_have_ended_make_room_for_others():
    a = comem.zeros(1, dtype=np.int64)
    for _ in range(40):
        threads = [threading.Thread(target=comem.fetch_add, args=(a, 0)) for _ in range(15)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    comem.barrier()
    assert a[0] == 40 * 15 * comem.size
    comem.barrier()


def test_the_interpreter_runs_while_a_thread_waits():
    ticks = []
    if comem.rank == 0:
        waiter = threading.Thread(target=lambda: comem.Semaphore("later").acquire())
        waiter.start()
        while len(ticks) < 1000:
            ticks.append(len(ticks))
        comem.Semaphore("later").release()
        waiter.join()
        assert len(ticks) == 1000
    comem.barrier()


def test_statistics_count():
    before = comem.stats()["barriers"]
    comem.barrier()
    assert comem.stats()["barriers"] == before + 1


@pytest.mark.parametrize("name", ["count", "another"])
def test_threads_count_under_locks_while_the_main_thread_goes_through_barriers(name):
    a = comem.zeros(2, dtype=np.int64, home=0)
    times, lock, rw = 60, comem.Lock(name), comem.RWLock(name)

    def work():
        for _ in range(times):
            with lock:
                a[0] += 1
            with rw.write():
                a[1] += 1

    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    while comem.allreduce(sum(t.is_alive() for t in threads)):
        comem.zeros(8)
        comem.barrier()
    [t.join() for t in threads]
    comem.barrier()
    assert a.tolist() == [2 * times * comem.size] * 2


@pytest.mark.skipif("comem.size < 2")
def test_what_a_thread_that_has_never_called_writes_beside_a_barrier_is_not_lost():
    # Node 1 alone writes the page before the barrier, so that it would become its home.
    a = comem.zeros(2, dtype=np.int64)
    assert a[0] == 0
    comem.barrier()
    if comem.rank == 0:
        thread = threading.Timer(0.1, a.__setitem__, (1, 5))
        thread.start()
        comem.barrier()
        thread.join()
    else:
        if comem.rank == 1:
            a[0] = 3
        time.sleep(0.3)
        comem.barrier()
    comem.barrier()
    assert a.tolist() == [3, 5]


def test_a_lock_waits_for_a_collective_call_and_a_collective_call_for_locks():
    order, inside = [], threading.Event()

    def work():
        with comem.Lock(f"of {comem.rank}"):
            inside.set()
            time.sleep(0.1)
            order.append("lock")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    comem.barrier()
    order.append("barrier")
    thread.join()
    assert order == ["lock", "barrier"]
