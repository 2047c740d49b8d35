"""Jacobi's method for a linear system whose matrix is shared: the same program as examples/jacobi.c and
crates/runtime/examples/jacobi.rs.

    comem run -n 4 python jacobi.py [SIZE]

Solves A x = b with A[i][i] = 2 SIZE, 1 elsewhere, and b such that every x[i] is 1.
"""

import sys

import numpy as np

import comem

TOLERANCE = 1e-10


def main() -> None:
    n = 200 if "--small" in sys.argv else int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    a = comem.zeros((n, n), home="block", name="a")
    x, next_x = comem.zeros(n, name="x"), comem.zeros(n, name="next x")
    mine = comem.split(n)
    rows = a[mine]
    rows[...] = 1.0
    rows[np.arange(len(rows)), np.arange(mine.start, mine.stop)] = 2.0 * n
    b = 3.0 * n - 1.0
    comem.barrier()

    steps, change = 0, 1.0
    while change > TOLERANCE:
        others = rows @ x - 2.0 * n * x[mine]
        next_x[mine] = (b - others) / (2.0 * n)
        change = comem.allreduce(float(np.abs(next_x[mine] - x[mine]).max(initial=0.0)), "max")
        x, next_x = next_x, x
        steps += 1

    error = comem.allreduce(float(np.abs(x[mine] - 1.0).max(initial=0.0)), "max")
    assert error < 1e-6, f"the solution is off by {error}"
    if comem.rank == 0:
        print(f"jacobi: {n} unknowns, {steps} steps: ok")


if __name__ == "__main__":
    main()
