"""How long it takes until each of several processes has read its part of an array that one of them has made.

    comem run -n 4 python scatter.py comem [--rows 1000000] [--repeat 5] [--home block]
    mpirun -n 4 python scatter.py mpi4py [--rows 1000000] [--repeat 5]

A row is four doubles. Prints the seconds of each time, of the process that took longest, as JSON; the first time warms
up and is left out. `comem-bench first-touch` runs both in turn.
"""

import argparse
import json
import time

import numpy as np

COLUMNS = 4


def made(rows):
    return np.arange(rows * COLUMNS, dtype=float).reshape(rows, COLUMNS)


def by_comem(options):
    import comem

    x = made(options.rows) if comem.rank == 0 else None
    taken = []
    for _ in range(options.repeat + 1):
        comem.barrier()
        start = time.perf_counter()
        a = comem.array(x, home=options.home)
        total = a[comem.split(options.rows)].sum()
        taken.append(comem.allreduce(time.perf_counter() - start, "max"))
        total = comem.allreduce(float(total))
        del a
    return (taken, total) if comem.rank == 0 else None


def by_mpi4py(options):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if options.rows % comm.size:
        raise SystemExit("scatter.py: MPI's Scatter takes parts of one size; choose another number of rows")
    x = made(options.rows) if comm.rank == 0 else None
    taken = []
    for _ in range(options.repeat + 1):
        comm.Barrier()
        start = time.perf_counter()
        mine = np.empty((options.rows // comm.size, COLUMNS))
        comm.Scatter(x, mine)
        total = mine.sum()
        taken.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
        total = comm.allreduce(float(total))
        del mine
    return (taken, total) if comm.rank == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("comem", "mpi4py"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--home", default="automatic", help="as for comem.array")
    options = parser.parse_args()
    result = {"comem": by_comem, "mpi4py": by_mpi4py}[options.way](options)
    if result is not None:
        taken, total = result
        count = options.rows * COLUMNS
        assert total == count * (count - 1) / 2, "the parts are not those of the array"
        print(json.dumps({"seconds": taken[1:]}))


if __name__ == "__main__":
    main()
