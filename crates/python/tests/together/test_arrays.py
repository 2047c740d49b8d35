"""Shared arrays. Every node runs this file, as one job: ``comem run -n 2 python -m pytest tests/together``."""

import gc
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import comem
from comem import _arrays, _core


def test_new_arrays_are_zero_and_what_one_node_writes_all_read():
    a = comem.zeros((300, 7), dtype=np.int32)
    assert type(a) is np.ndarray and a.shape == (300, 7) and a.dtype == np.int32 and not a.any()
    comem.barrier()
    a[comem.rank :: comem.size] = comem.rank + 1
    comem.barrier()
    for node in range(comem.size):
        assert (a[node :: comem.size] == node + 1).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("home", ["automatic", "block", "cyclic", "first-touch", 0])
def test_every_home_and_order_holds_the_same_numbers(home, order):
    a = comem.zeros((513, 129), order=order, home=home)
    assert a.flags.fnc == (order == "F")
    mine = comem.block(a)
    mine += comem.rank + 1
    comem.barrier()
    lines, length = (513, 129) if order == "C" else (129, 513)
    parts = enumerate(comem._collective.parts(lines))
    assert a.sum() == sum((high - low) * (node + 1) for node, (low, high) in parts) * length


@pytest.mark.parametrize("engine", ["hlrc", "msi"])
def test_more_threads_than_a_node_has_places_use_an_array(engine):
    threads = 24
    a = comem.zeros((2 * threads, 4096), engine=engine)
    if comem.rank == comem.size - 1:
        a[:] = 1
    comem.barrier()
    together = threading.Barrier(threads)

    def part(i):
        together.wait()
        before = a[i].sum()
        a[threads + i, 100 * comem.rank : 100 * comem.rank + 100] = 2
        together.wait()
        return before

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(part, range(threads))) == threads * 4096
    comem.barrier()
    assert (a[threads:, : 100 * comem.size] == 2).all()


@pytest.mark.parametrize("engine", ["hlrc", "scope", "lrc", "multicast", "msi"])
def test_every_engine_serves_arrays(engine):
    a = comem.zeros(10_000, engine=engine)
    a[comem.split(len(a))] = 2
    comem.barrier()
    assert a.sum() == 20_000


def test_arrays_of_two_engines_keep_what_each_promises():
    data, sign = comem.zeros(4_000, engine="hlrc"), comem.zeros(2_000, engine="scope")
    lock = comem.Lock("sign")
    for turn in range(1, 2 * comem.size + 1):
        if turn % comem.size == comem.rank:
            data[:] = turn
            with lock:
                sign[:] = turn
        seen = 0
        while seen < turn:
            with lock:
                seen = sign[0]
                assert (sign == seen).all()
        assert (data == turn).all()
        comem.barrier()


def test_full_fills_and_array_takes_node_0s():
    assert (comem.full((5, 5), 3.5) == 3.5).all()
    a = comem.array(np.arange(6.0).reshape(2, 3) if comem.rank == 0 else "something else")
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert comem.array([True, False]).dtype == bool
    assert comem.full(3, 7).dtype == np.asarray(7).dtype


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("value", [7, [1, 2], [[1, 2], [3, 4]]])
def test_full_fills_elements_that_are_arrays_as_numpy_does(order, value):
    a = comem.full((3, 5), value, "(2,2)f8", order=order)
    assert a.shape == (3, 5, 2, 2) and np.array_equal(a, np.full((3, 5), value, "(2,2)f8"))


def test_array_takes_types_that_another_package_has_added():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="SKIP: Python: ml_dtypes is not installed")
    a = comem.array(np.arange(6).astype(ml_dtypes.bfloat16))
    assert a.dtype == ml_dtypes.bfloat16 and a.astype(int).tolist() == list(range(6))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("value", [range(6), [[n] for n in range(5)], np.arange(30).reshape(5, 6), 7])
def test_full_fills_with_rows_and_columns_as_numpy_does(order, value):
    a = comem.full((5, 6), value, order=order)
    assert np.array_equal(a, np.full((5, 6), value)) and a.dtype == np.asarray(value).dtype


def test_full_takes_records_and_refuses_what_does_not_fit():
    a = comem.full(3, (1.5, 2), dtype=[("x", "f8"), ("n", "i4")])
    assert a["x"].tolist() == [1.5] * 3 and a["n"].tolist() == [2] * 3
    assert comem.full((), 3)[()] == 3
    for value in ([1, 2], range(3), "text"):
        with pytest.raises(comem.ArgumentError, match="cannot fill"):
            comem.full(4, value, dtype=float)
    with pytest.raises(comem.ArgumentError, match="node 1|cannot fill"):
        comem.full(4, [1, 2] if comem.rank == comem.size - 1 else 1, dtype=float)
    assert comem.allreduce(1) == comem.size


def test_structured_and_text_elements_work():
    a = comem.zeros(10, dtype=[("x", "f8"), ("n", "i4")])
    words = comem.zeros(4, dtype="S8")
    if comem.rank == 0:
        a["x"][3], words[1] = 1.5, b"comem"
    comem.barrier()
    assert a["x"].sum() == 1.5 and words[1] == b"comem"


def test_arrays_without_elements_or_dimensions_work():
    assert comem.zeros(0).shape == (0,) and comem.zeros((3, 0, 2)).sum() == 0
    scalar = comem.zeros(())
    if comem.rank == 0:
        scalar[...] = 4
    comem.barrier()
    assert scalar[()] == 4 and comem.block(scalar).size == (comem.rank == 0)


def test_blocks_are_the_array_and_live_at_home():
    a = comem.zeros((1000, 512), home="block", name="blocks")
    comem.block(a)[...] = comem.rank
    comem.barrier()
    mine = comem.split(1000)
    assert (a[mine] == comem.rank).all()
    assert comem.allreduce(comem.block(a).size) == a.size


def test_reading_ones_own_block_fetches_nothing():
    a = comem.zeros((1024, 512), home="block")
    before = comem.stats()["pages"]["pages_fetched"]
    assert comem.block(a).sum() == 0
    assert comem.stats()["pages"]["pages_fetched"] == before


def test_numpy_operations_and_blas_work_on_shared_memory():
    a = comem.array(np.arange(40_000.0).reshape(200, 200))
    c = comem.zeros((200, 200))
    mine = comem.split(200)
    np.matmul(a[mine], a, out=c[mine])
    comem.barrier()
    private = np.array(a)
    assert np.array_equal(c, private @ private)
    assert np.allclose(np.linalg.norm(c), np.linalg.norm(private @ private))


def test_a_view_keeps_the_memory():
    a = comem.zeros(100_000)
    a[comem.split(len(a))] = 1
    comem.barrier()
    view = a[10:20]
    del a
    gc.collect()
    comem.zeros(10)
    comem.zeros(10)
    assert view.sum() == 10


RECORD = [("x", "f8"), ("y", "3f4"), ("n", "u1")]


@pytest.mark.parametrize("shape", [7, (3, 5), (), 0, (3, 0)])
@pytest.mark.parametrize("dtype", ["u1", "f8", "c16", "S3", "M8[s]", RECORD, "(2,3)i4", "V4097"], ids=str)
def test_the_base_of_an_array_is_as_large_as_the_array(shape, dtype):
    a = comem.zeros(shape, dtype)
    again = _arrays.resolve(_arrays.refer(a[:0] if a.ndim else a))
    view = a.reshape(-1)[1:]
    for one in (a, again, view, view.view(np.ndarray)):
        assert one.base.size == a.size and _arrays.region_of(one) is _arrays.region_of(a)
    assert comem.is_shared(a) and a.flags.writeable and not any(a.tobytes())
    del a, again, one
    gc.collect()
    assert comem.is_shared(view) and _arrays.region_of(view).nbytes >= view.nbytes


def test_arrays_are_no_small_part_of_something_large():
    def pruned(x):
        """What SciPy's sparse matrices hold of an array."""
        return x.copy() if x.base is not None and x.size < x.base.size // 2 else x

    a, records = comem.array(np.arange(10.0)), comem.zeros(10, RECORD)
    for one in (a, a[2:], a.reshape(2, 5).T, records["x"]):
        assert pruned(one) is one and pruned(_arrays.resolve(_arrays.refer(one))).base.size == 10


def test_what_another_node_holds_has_its_base_again():
    a = comem.zeros(40, RECORD)
    reference = _arrays.refer(a["x"][3:5])
    if comem.rank:
        del a
        gc.collect()
        assert reference.region in _core.dropped_regions()
        again = _arrays.resolve(reference)
        assert again.base.size == 40 and again.shape == (2,) and again.strides == (21,)
    comem.barrier()


def test_memory_that_every_node_has_dropped_is_given_back():
    comem.zeros(10)
    gc.collect()
    for _ in range(3):
        comem.zeros(500_000)
        gc.collect()
    # The next allocation gives back what all have dropped by now.
    comem.zeros(10)
    assert len(_core.dropped_regions()) <= 1


def test_memory_that_another_node_holds_stays():
    a = comem.full(1000, 2.0)
    number = comem._arrays.region_of(a).number
    if comem.rank != 0:
        del a
        gc.collect()
    comem.zeros(10)
    if comem.rank == 0:
        assert a.sum() == 2000
    if comem.size > 1 and comem.rank == 1:
        assert number in _core.dropped_regions()


def test_memory_that_is_dropped_while_nodes_compare_waits_for_the_next_time(monkeypatch):
    held = [comem.zeros(10), comem.zeros(10)]
    agree = _arrays.agree

    def agree_and_drop(*arguments):
        heard = agree(*arguments)
        if comem.rank == 0:
            # As another thread, or the collection of garbage, may do at any time.
            held.clear()
        return heard

    held.pop(0)
    monkeypatch.setattr(_arrays, "agree", agree_and_drop)
    comem.zeros(10)
    monkeypatch.undo()
    held.clear()
    comem.zeros(10)
    assert len(_core.dropped_regions()) <= 1


def test_a_frozen_array_can_be_read_and_not_written():
    a = comem.full(5000, 2.0)
    frozen = comem.freeze(a)
    assert frozen is a and a.sum() == 10_000
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 1
    view = comem.full(5000, 3.0)[10:20]
    assert comem.freeze(view) is view and not view.flags.writeable
    assert comem.prefetch(view) is view
    for part in (lambda whole: whole[2:5], lambda whole: whole.reshape(-1), lambda whole: whole.T[1:][:1]):
        whole = comem.zeros((10, 10))
        comem.freeze(part(whole))
        assert not whole.flags.writeable and not whole[1:].flags.writeable
    for write in (lambda: comem.prefetch(view, write=True), lambda: comem.fetch_add(view, 0)):
        with pytest.raises(comem.ArgumentError, match="frozen"):
            write()


def test_fetch_add_loses_nothing():
    a = comem.zeros((4, 4), dtype=np.int64)
    seen = [comem.fetch_add(a, (1, 2)) for _ in range(20)]
    comem.barrier()
    assert a[1, 2] == 20 * comem.size and len(set(seen)) == 20
    everybodys = comem.allreduce(sum(seen))
    assert everybodys == sum(range(20 * comem.size))


@pytest.mark.parametrize("index", [np.array(2), np.int8(2), (np.array(-1),)])
def test_fetch_add_takes_numbers_of_every_kind(index):
    a = comem.zeros(3, dtype=np.int64)
    comem.fetch_add(a, index)
    comem.barrier()
    assert a.tolist() == [0, 0, comem.size]


def test_fetch_add_adds_what_the_type_can_hold():
    for dtype, wrong in (("i8", 0.5), ("i8", "one"), ("f8", 1j), ("i8", np.ones(2))):
        with pytest.raises(comem.ArgumentError, match="cannot be added"):
            comem.fetch_add(comem.zeros(1, dtype), 0, wrong)
    flag, times = comem.zeros(1, bool), comem.zeros(1, "M8[s]")
    first = [comem.fetch_add(flag, 0), comem.fetch_add(times, 0, np.timedelta64(1, "s"))][0]
    assert comem.allreduce(int(not first)) == 1 and times[0] == np.datetime64(comem.size, "s")


@pytest.mark.parametrize("index", [[2], slice(0, 2), True, np.True_, np.array([0, 1]), None, ..., 1.0])
def test_fetch_add_refuses_what_names_no_single_element(index):
    a = comem.zeros(3, dtype=np.int64)
    with pytest.raises(comem.ArgumentError, match="no single element"):
        comem.fetch_add(a, index)
    assert not a.any()


def test_prefetch_brings_views_of_any_shape():
    a = comem.full((300, 400), 1.0)
    for view in (a, a[::3], a[:, ::5], a.T, a[5, 6:7], a[:0], a[10:20, 30:40]):
        assert comem.prefetch(view, write=True) is view


def test_views_that_numpy_makes_by_address_are_shared_too():
    a = comem.full((10, 20), 1.0)
    windows = np.lib.stride_tricks.sliding_window_view(a[0], 3)
    strided = np.lib.stride_tricks.as_strided(a[5:, 5:], (3, 4), (-8, 160))
    seen = np.asarray(memoryview(a))
    for view in (windows, strided, seen, seen[:0], np.frombuffer(a.data, count=7)):
        assert comem.prefetch(view) is view and _arrays.region_of(view) is _arrays.region_of(a)
        again = _arrays.resolve(_arrays.refer(view))
        assert again.__array_interface__ == view.__array_interface__ and again.flags.writeable == view.flags.writeable
    assert comem.fetch_add(seen, (1, 1)) >= 1
    beyond = np.lib.stride_tricks.as_strided(a, (10, 600))
    with pytest.raises(comem.ArgumentError, match="no shared array"):
        comem.prefetch(beyond)
    comem.barrier()


def test_npy_files_are_read_by_all_nodes(tmp_path_factory):
    path = comem.broadcast(str(tmp_path_factory.mktemp("npy") / "a.npy") if comem.rank == 0 else None)
    for source in (np.arange(3000.0).reshape(100, 30), np.asfortranarray(np.arange(12).reshape(3, 4)), np.array(5.0)):
        if comem.rank == 0:
            np.save(path, source)
        comem.barrier()
        a = comem.open_npy(path)
        assert a.dtype == source.dtype and np.array_equal(a, source) and comem.is_shared(a)
        comem.barrier()
    with pytest.raises(comem.ArgumentError, match="cannot be read"):
        comem.open_npy(path + ".missing")


@pytest.mark.parametrize("x", [[1, [2, 3]], "text", float], ids=["ragged", "text", "type"])
def test_what_makes_no_array_fails_on_every_node(x):
    with pytest.raises(comem.ArgumentError, match="no array|references to Python objects"):
        comem.array(x if comem.rank == 0 else 1, float if x == "text" else None)
    with pytest.raises(comem.ArgumentError, match="no array"):
        comem.array(1, "nonsense")
    comem.barrier()


@pytest.mark.parametrize("contents", ["empty", "several", "cut short", "text"])
def test_files_that_hold_no_array_fail_on_every_node(tmp_path_factory, contents):
    path = comem.broadcast(str(tmp_path_factory.mktemp("npy") / "a.npy") if comem.rank == 0 else None)
    if comem.rank == 0:
        with open(path, "wb") as file:
            if contents == "several":
                np.savez(file, a=np.zeros(3), b=np.zeros(3))
            elif contents == "cut short":
                np.save(file, np.zeros(100))
                file.truncate(200)
            else:
                file.write(b"some text" * (contents == "text"))
    comem.barrier()
    with pytest.raises(comem.ArgumentError, match="cannot be read"):
        comem.open_npy(path)
    comem.barrier()


def test_pickles_hold_copies_and_references_hold_places():
    a = comem.full(2000, 3.0)
    buffers = []
    copy = pickle.loads(pickle.dumps(a, protocol=5, buffer_callback=buffers.append), buffers=buffers)
    assert copy.sum() == 6000
    copy = pickle.loads(pickle.dumps(a))
    assert not comem.is_shared(copy) and copy.sum() == 6000
    again = _arrays.resolve(pickle.loads(pickle.dumps(_arrays.refer(a[5:9]))))
    assert comem.is_shared(again) and again.sum() == 12
    with pytest.raises(comem.SendError, match="no node of its job"):
        _arrays.resolve(_arrays.refer(a)._replace(job="another"))


def test_arrays_can_be_saved_and_loaded_through_memory():
    a = comem.full(2000, 3.0)
    file = io.BytesIO()
    np.save(file, a)
    assert np.array_equal(np.load(io.BytesIO(file.getvalue())), a)


class Speechless:
    def __repr__(self):
        raise RuntimeError("no words")


def test_what_makes_no_sense_is_refused_alike_everywhere():
    for call, why in [
        (lambda: comem.zeros(3, dtype=object), "references to Python objects"),
        (lambda: comem.zeros(3, dtype=[("a", "O")]), "references to Python objects"),
        (lambda: comem.zeros(3, dtype="S0"), "no size"),
        (lambda: comem.zeros(3, dtype="nonsense"), "no type of elements"),
        (lambda: comem.zeros(-1), "negative"),
        (lambda: comem.zeros((2, -3)), "negative"),
        (lambda: comem.zeros(2.5), "no shape"),
        (lambda: comem.zeros(3, order="A"), "order"),
        (lambda: comem.zeros(3, home="nowhere"), "no home"),
        (lambda: comem.zeros([[1, 2], 3]), "no shape"),
        (lambda: comem.zeros(3, home=comem.size), "no node"),
        (lambda: comem.zeros(3, home=1.5), "no home"),
        (lambda: comem.zeros(3, name=5), "no name"),
        (lambda: comem.full(3, [1, [2, 3]]), "cannot fill"),
        (lambda: comem.zeros(3, engine="magic"), "magic"),
        (lambda: comem.zeros(1 << 61), "address space"),
        (lambda: comem.zeros(1 << 62, "u1"), "address space"),
        (lambda: comem.zeros((1,) * 65), "at most (64|32) dimensions"),
        (lambda: comem.split(-1), "split"),
        (lambda: comem.split(2.5), "split"),
        (lambda: comem.split("3"), "split"),
        (lambda: comem.split(np.array(2.5)), "split"),
        (lambda: comem.block([1, 2]), "no blocks"),
        (lambda: comem.prefetch(np.zeros(3)), "no shared array"),
        (lambda: comem.prefetch([1, 2]), "no shared array"),
        (lambda: comem.fetch_add([1, 2], 0), "no shared array"),
        (lambda: comem.Lock(3.5), "names nothing"),
        (lambda: comem.allreduce("text"), "have no sum"),
        (lambda: comem.allreduce([1, [2, 3]]), "no array"),
        (lambda: comem.allreduce(1, "product"), "no reduction"),
        (lambda: comem.broadcast(1, root=99), "no node"),
        (lambda: comem.broadcast(1, root="0"), "no node"),
        (lambda: comem.reduce(1, root=comem.size), "no node"),
        (lambda: comem.reduce(1, root=-1), "no node"),
        (lambda: comem.reduce("text", root=99), "no node"),
        (lambda: comem.fetch_add(comem.zeros(3), (0, 0)), "no single element"),
        (lambda: comem.allreduce(np.ma.masked_array([1, 2], [False, True])), "masked"),
        (lambda: comem.reduce(np.ma.masked_array(np.ones(3000), False)), "masked"),
        (lambda: comem.zeros(Speechless()), "Speechless object at .* is no shape"),
        (lambda: comem.zeros(3, Speechless()), "no type of elements"),
        (lambda: comem.zeros(3, order=Speechless()), "no order"),
        (lambda: comem.zeros(3, home=Speechless()), "no home"),
        (lambda: comem.zeros(3, name=Speechless()), "no name"),
        (lambda: comem.full(3, Speechless(), float), "cannot fill"),
        (lambda: comem.fetch_add(comem.zeros(3), 0, Speechless()), "cannot be added"),
        (lambda: comem.allreduce(1, Speechless()), "no reduction"),
    ]:
        with pytest.raises(comem.ArgumentError, match=why):
            call()
    # All of it left the job as it was.
    assert comem.allreduce(1) == comem.size


def test_an_array_larger_than_the_heap_is_refused():
    with pytest.raises(comem.HeapFullError, match="no room"):
        comem.zeros(1 << 45, dtype="u1")
    assert comem.zeros(5).sum() == 0


@pytest.mark.skipif("comem.size < 2")
@pytest.mark.parametrize(
    "value", [1.5, np.arange(1000.0), np.longdouble(1.5), "text"], ids=["number", "many", "wide", "text"]
)
def test_values_to_fill_with_that_differ_name_the_node(value):
    value = np.asarray(value)
    with pytest.raises(comem.ArgumentError, match=r"node 0 called full.*but node 1 called full.*fill_value="):
        comem.full((3, 1000), value.astype("U9") if comem.rank == 1 else "other", "U9")
    other = value.copy()
    other.reshape(-1)[-1:] = 7
    with pytest.raises(comem.ArgumentError, match=r"node 0 called full.*but node 1 called full.*fill_value="):
        comem.full((3, 1000), other if comem.rank == 1 else value, value.dtype)
    assert (comem.full((3, 1000), value.tolist() if comem.rank == 1 else value, value.dtype) == value).all()


@pytest.mark.skipif("comem.size < 2")
def test_arguments_that_differ_name_the_node():
    with pytest.raises(comem.ArgumentError, match=r"node 0 called zeros.*but node 1 called zeros.*99"):
        comem.zeros(99 if comem.rank == 1 else 10)
    with pytest.raises(comem.ArgumentError, match="node 0 called zeros.*name='0'.*but node 1 called zeros.*name='1'"):
        comem.zeros(10, name=str(comem.rank))
    with pytest.raises(comem.ArgumentError, match="node 1|negative"):
        comem.zeros(-1 if comem.rank == 1 else 1)
    for dtype in ([("a", "f8"), ("a", "f8")], "f8,,"):
        with pytest.raises(comem.ArgumentError, match="node 1|no type of elements"):
            comem.zeros(1, dtype if comem.rank == 1 else float)
    assert comem.allreduce(1) == comem.size
