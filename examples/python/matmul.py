"""Matrix product with BLAS: each node multiplies its rows of A by all of B, straight from and into shared memory.

    comem run -n 4 python matmul.py [--size 2000]
"""

import argparse
import time

import numpy as np

import comem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    n = 150 if options.small else options.size

    a, b, c = (comem.zeros((n, n), home="block", name=name) for name in "abc")
    random = np.random.default_rng(comem.rank)
    comem.block(a)[...] = random.integers(0, 10, comem.block(a).shape)
    comem.block(b)[...] = random.integers(0, 10, comem.block(b).shape)
    comem.barrier()
    comem.freeze(b)

    start = time.perf_counter()
    np.matmul(comem.block(a), b, out=comem.block(c))
    comem.barrier()
    seconds = time.perf_counter() - start

    # Whole numbers: the sums are exact. C·x must be A·(B·x), for an x that nobody could guess.
    x = comem.broadcast(np.random.default_rng().integers(0, 100, n).astype(float) if comem.rank == 0 else None)
    wrong = comem.allreduce(int(not np.array_equal(comem.block(c) @ x, comem.block(a) @ (b @ x))))
    if comem.rank == 0:
        assert not wrong, "the product is wrong"
        rate = 2 * n**3 / seconds / 1e9
        print(f"matmul: {n} x {n}, {comem.size} nodes: right, {seconds:.3f} s, {rate:.1f} GFlop/s")


if __name__ == "__main__":
    main()
