"""Values at the door: what is more than its numbers is refused on every node, and all numbers arrive as they are."""

import decimal
import fractions

import comem
import numpy as np
import pytest

MASKED = np.ma.array([1.0, 999.0, 3.0], mask=[0, 1, 0])


class Grid(np.ndarray):
    """A class of arrays of somebody's own."""


class Quantity:
    """Something with a unit, as other packages have it."""

    units = "m"

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0], dtype)


def of_other_packages():
    """The same kinds from packages that may be here."""
    found = {}
    try:
        import pandas as pd

        found["pandas series"] = pd.Series([1.0, 2.0], index=["a", "b"])
        found["pandas frame"] = pd.DataFrame({"a": [1.0], "b": [2.0]})
        found["pandas index"] = pd.Index([1, 2])
        found["pandas categories"] = pd.Categorical(["a", "b"])
    except ImportError:
        pass
    try:
        import scipy.sparse

        found["sparse array"] = scipy.sparse.csr_array(np.eye(3))
        found["sparse matrix"] = scipy.sparse.coo_matrix(np.eye(3))
    except ImportError:
        pass
    try:
        import astropy.units

        found["astropy quantity"] = np.arange(3.0) * astropy.units.m
        found["astropy numbers"] = [1 * astropy.units.m, 2 * astropy.units.km]
    except ImportError:
        pass
    try:
        import pint

        found["pint quantity"] = pint.UnitRegistry().Quantity(np.arange(3.0), "m")
    except ImportError:
        pass
    try:
        import xarray

        found["xarray"] = xarray.DataArray([1.0, 2.0], coords={"x": [10, 20]}, dims=["x"])
    except ImportError:
        pass
    try:
        import pyarrow

        found["arrow"] = pyarrow.array([1, None])
    except ImportError:
        pass
    try:
        import polars

        found["polars"] = polars.Series([1, None])
    except ImportError:
        pass
    return found


MORE_THAN_NUMBERS = {
    "masked": MASKED,
    "masked without a mask": np.ma.array([1.0]),
    "masked number": np.ma.masked,
    "list of masked": [MASKED, MASKED],
    "deep in lists": [[1.0, 2.0], (3.0, np.ma.masked)],
    "matrix": np.arange(4).reshape(2, 2).view(np.matrix),
    "class of its own": np.arange(3).view(Grid),
    "records by attribute": np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    "unit": Quantity(),
    "objects that are masked": np.array([MASKED, None], object),
    **of_other_packages(),
}


@pytest.mark.parametrize("x", MORE_THAN_NUMBERS.values(), ids=MORE_THAN_NUMBERS)
def test_what_is_more_than_its_numbers_is_refused_everywhere(x):
    with pytest.raises(comem.ArgumentError, match="has .*would be lost: "):
        comem.array(x)
    with pytest.raises(comem.ArgumentError, match="would be lost"):
        comem.array(x, dtype=float)
    with pytest.raises(comem.ArgumentError, match="would be lost"):
        comem.full((2, 2), x)
    with pytest.raises(comem.ArgumentError, match="would be lost"):
        comem.full_like(np.zeros((2, 2)), x)
    with pytest.raises(comem.ArgumentError, match="would be lost"):
        comem.zeros_like(x)
    with pytest.raises(comem.ArgumentError, match="would be lost"):
        comem.allreduce(x)
    a = comem.zeros(1)
    with pytest.raises(comem.ArgumentError, match="would be lost"):
        comem.fetch_add(a, 0, x)
    assert a[0] == 0 and comem.allreduce(1) == comem.size


def test_node_0_alone_decides_and_all_hear_of_it():
    x = MASKED if comem.rank == 0 else None
    with pytest.raises(comem.ArgumentError, match="node 0 passes what cannot be shared: a MaskedArray has a mask"):
        comem.array(x)
    last = comem.size - 1
    with pytest.raises(comem.ArgumentError):
        comem.full(3, np.ma.masked if comem.rank == last else 1.0)
    assert comem.array(np.arange(3) if comem.rank == 0 else MASKED).tolist() == [0, 1, 2]


NO_NUMBERS = {
    "objects": np.array([1, "a"], object),
    "none": [1.0, None],
    "decimals": [decimal.Decimal("1.5")],
    "fractions": [fractions.Fraction(1, 3)],
    "objects in a structure": np.zeros(2, [("a", int), ("b", object)]),
    "sets": {1, 2},
    "strings of any length": np.array(
        ["a", "bb"], getattr(getattr(np, "dtypes", None), "StringDType", lambda: object)()
    ),
}


@pytest.mark.parametrize("x", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_objects_are_refused_everywhere(x):
    with pytest.raises(comem.ArgumentError, match="references to Python objects"):
        comem.array(x)
    with pytest.raises(comem.ArgumentError):
        comem.zeros_like(x)


def frozen(a):
    a.flags.writeable = False
    return a


STRUCTURE = np.dtype([("when", "M8[s]"), ("where", ">f4", (2,)), ("name", "S3")], align=True)
NUMBERS = {
    "times": np.array(["2026-11-29", "NaT"], "M8[D]"),
    "durations": np.array([90, -1], "m8[25us]"),
    "big-endian": np.arange(5, dtype=">i4"),
    "big-endian complex": np.array([1 + 2j, -3j], ">c16"),
    "every other": np.arange(20).reshape(4, 5)[::2, ::3],
    "backwards": np.arange(12.0).reshape(3, 4)[::-1, ::-1],
    "turned": np.arange(12.0).reshape(3, 4).T,
    "repeated": np.broadcast_to(np.arange(3), (4, 3)),
    "read-only": frozen(np.arange(4)),
    "long": np.array([np.longdouble(1) / 3, np.nan]),
    "long complex": np.array([np.clongdouble(1) / 3, 2j]),
    "half": np.array([1, -np.inf], np.float16),
    "truth": np.array([True, False]),
    "truth value": True,
    "empty": np.zeros((0, 3), np.int16),
    "no dimensions": np.array(3.5),
    "texts": np.array(["grün", "x"]),
    "bytes": np.array([b"a\0b", b""], "S3"),
    "structures": np.array([("2026-11-29T01:02:03", (1.5, 2.5), b"abc")], STRUCTURE),
    "raw": np.frombuffer(b"\x01\x02\x03\x04\x05\x06", "V3"),
    "whole numbers beyond int64": np.array([2**64 - 1], np.uint64),
    "lists": [[1, 2], [3, 4]],
    "a range": range(4),
    "a buffer": memoryview(np.arange(4, dtype=np.int16)),
}


@pytest.mark.parametrize("x", NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_every_kind_arrive_as_they_are(x):
    wanted = np.asarray(x)
    a = comem.array(x)
    assert (a.dtype, a.shape) == (wanted.dtype, wanted.shape) and type(a) is np.ndarray and comem.is_shared(a)
    if wanted.dtype.names:  # between whose fields some bytes are padding
        assert (a == wanted).all()
    elif wanted.dtype.char in "gG":  # of whose bytes some are padding
        assert np.array_equal(a, wanted, equal_nan=True)
    else:
        assert a.tobytes() == wanted.tobytes()
    assert a.flags.writeable
    alike = comem.zeros_like(x)
    assert (alike.dtype, alike.shape) == (wanted.dtype, wanted.shape) and not alike.tobytes().strip(b"\0")
    comem.barrier()


def test_files_in_memory_are_arrays(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "a.bin"
    np.arange(6.0).tofile(path)
    assert comem.array(np.memmap(path, float, "r")).tolist() == [0, 1, 2, 3, 4, 5]


def test_arrays_like_others_have_shape_type_and_order():
    pattern = np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3))
    for make, value in (
        (comem.zeros_like, 0),
        (comem.ones_like, 1),
        (comem.empty_like, None),
        (lambda a, **k: comem.full_like(a, 7, **k), 7),
    ):
        for a in (make(pattern), make(comem.array(pattern, order="F"))):
            assert (a.shape, a.dtype, a.flags.f_contiguous, comem.is_shared(a)) == ((2, 3), np.int16, True, True)
            assert value is None or (a == value).all()
        b = make(pattern, dtype=float, order="C", shape=5, home="cyclic", name="b")
        assert (b.shape, b.dtype) == ((5,), float) and (value is None or (b == value).all())
    assert comem.zeros_like([[1, 2]]).dtype == np.array(1).dtype and comem.ones_like(3.0).shape == ()
    assert comem.zeros_like(pattern[:, ::2]).flags.c_contiguous
    comem.barrier()


def test_patterns_that_differ_name_the_node():
    if comem.size > 1:
        with pytest.raises(comem.ArgumentError, match="call it alike"):
            comem.zeros_like(np.zeros(3 + (comem.rank == 1)))
    with pytest.raises(comem.ArgumentError, match="makes no array"):
        comem.zeros_like([[1], [2, 3]])
    with pytest.raises(comem.ArgumentError, match="there is no order"):
        comem.zeros_like([1], order="Z")


def test_ones_are_numpys():
    for dtype in (float, np.int8, complex, bool, ">i4", "S2", [("a", int), ("b", float)]):
        a, b = comem.ones((3, 2), dtype), np.ones((3, 2), dtype)
        assert a.dtype == b.dtype and (a == b).all()
    assert comem.ones(4, order="F", home="block").sum() == 4
    comem.barrier()


@pytest.mark.parametrize("n", [0, 1, 3, 10, 2000])
def test_scattered_rows_are_those_of_split(n):
    root = comem.size - 1
    table = np.arange(n * 3.0).reshape(n, 3)
    mine = comem.scatter(table if comem.rank == root else None, root=root)
    assert mine.dtype == float and mine.tolist() == table[comem.split(n)].tolist()
    assert not comem.is_shared(mine) and mine.flags.writeable
    words = [f"word {i}" for i in range(n)]
    assert comem.scatter(words if comem.rank == 0 else "not looked at") == words[comem.split(n)]


def test_scattered_values_keep_what_they_are():
    masked = np.ma.masked_less(np.arange(comem.size * 2), 1)
    mine = comem.scatter(masked)
    assert mine.mask.tolist() == masked.mask[comem.split(comem.size * 2)].tolist()
    shared = comem.array(np.arange(8))
    assert not comem.is_shared(comem.scatter(shared))


@pytest.mark.parametrize("x", [3, np.array(1.0), {1: 2}, {1, 2}, [lambda: 0] * 8], ids=str)
def test_what_cannot_be_scattered_fails_on_every_node(x):
    with pytest.raises(comem.ArgumentError, match="scatter"):
        comem.scatter(x)
    with pytest.raises(comem.ArgumentError, match="no node 99"):
        comem.scatter([1], root=99)
    assert comem.allreduce(1) == comem.size


@pytest.mark.parametrize("n", [1, 5000])
def test_gathered_things_come_by_node(n):
    mine = np.full(n + comem.rank, comem.rank, np.int32)
    for root in {0, comem.size - 1}:
        heard = comem.gather(mine, root=root)
        if comem.rank == root:
            assert [x.tolist() for x in heard] == [[node] * (n + node) for node in range(comem.size)]
            assert heard[root] is mine and not any(map(comem.is_shared, heard))
        else:
            assert heard is None
    kinds = comem.gather([None, {"a": comem.rank}, MASKED][comem.rank % 3])
    if comem.rank == 0:
        assert len(kinds) == comem.size and kinds[0] is None
        assert comem.size < 3 or kinds[2].mask.tolist() == [False, True, False]


def test_what_cannot_be_gathered_fails_on_every_node():
    last = comem.size - 1
    if comem.size > 1:
        with pytest.raises(comem.ArgumentError, match="gather.* cannot be pickled|gather what cannot be pickled"):
            comem.gather((lambda: 0) if comem.rank == last else 1)
        with pytest.raises(comem.ArgumentError, match="call it alike"):
            comem.gather(1, root=int(comem.rank == last))
    with pytest.raises(comem.ArgumentError, match="no node -1"):
        comem.gather(1, root=-1)
    assert comem.allreduce(1) == comem.size
