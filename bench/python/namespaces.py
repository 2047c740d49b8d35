"""One measurement of namespaces.sh, as one job: prints a line `what name=value …` for each figure.

    comem run -n 4 python namespaces.py sum [--mebibytes 256] [--repeat 5]
    comem run -n 2 python namespaces.py heat|kmeans SIZE… [--repeat 5]

`sum`: node 0 fills a fresh array and all nodes add it up (`one`), or each node fills its rows and goes on from there
(`each`); the bytes out of the busiest node in the meantime, the seconds, and how many processors that kept busy.
`heat` and `kmeans`: seconds of the examples' own steps, by the size of the problem.
"""

import argparse
import pathlib
import resource
import statistics
import sys
import time

import numpy as np

import comem

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))

import heat
import kmeans

HEAT_STEPS = 50
KMEANS_STEPS = 20


def processor_seconds() -> float:
    """What this process has used of the processors."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(work) -> tuple:
    """Runs ``work`` on all nodes at once; gives the seconds until the last was ready, how many processors all kept
    busy, and its result."""
    comem.barrier()
    used, start = processor_seconds(), time.perf_counter()
    result = work()
    seconds = comem.allreduce(time.perf_counter() - start, "max")
    return seconds, comem.allreduce(processor_seconds() - used) / seconds, result


def add_up(options: argparse.Namespace) -> None:
    """The sum of a fresh array on all nodes."""
    count = options.mebibytes << 17
    for filled in ("one", "each"):
        taken = []
        for _ in range(options.repeat):
            a = comem.zeros(count, home=0 if filled == "one" else "block")
            if filled == "each":
                comem.block(a)[...] = 1
            elif comem.rank == 0:
                a[:] = 1
            # Everybody begins with what is here: whoever reads the rows of one node first, waits for that node's line.
            mine = comem.split(count).start
            seconds, busy, total = measured(
                a.sum if filled == "one" else lambda a=a, mine=mine: a[mine:].sum() + a[:mine].sum()
            )
            assert total == count
            taken.append((seconds, busy))
        # The busiest line carries the whole array to each other node, or a node's part of it.
        outgoing = (comem.size - 1) * count * 8 / (1 if filled == "one" else comem.size)
        if comem.rank == 0:
            seconds, busy = sorted(taken)[len(taken) // 2]
            print(f"sum filled={filled} bytes={outgoing:.0f} seconds={seconds:.4f} processors={busy:.2f}")


def heat_seconds(size: int) -> float:
    """Seconds of the heat example's steps on a plate of ``size`` x ``size``."""
    plates = [comem.zeros((size, size), home="block") for _ in range(2)]
    if comem.rank == 0:
        for plate in plates:
            plate[0] = 100.0
    comem.barrier()
    heat.steps(*plates, 2)
    return measured(lambda: heat.steps(*plates, HEAT_STEPS))[0]


def kmeans_seconds(size: int) -> float:
    """Seconds of the k-means example's steps with ``size`` points."""
    middles = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [5, 5]], float)
    random = np.random.default_rng(7)
    made = middles[random.integers(5, size=size)] + random.standard_normal((size, 2)) if comem.rank == 0 else None
    points = comem.freeze(comem.array(made, home="block"))
    labels = comem.zeros(size, dtype=np.int8, home="block")
    return measured(lambda: kmeans.cluster(points, labels, middles + 0.5, KMEANS_STEPS))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("sum", "heat", "kmeans"))
    parser.add_argument("sizes", type=int, nargs="*")
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    if options.what == "sum":
        add_up(options)
        return
    work = {"heat": heat_seconds, "kmeans": kmeans_seconds}[options.what]
    for size in options.sizes:
        seconds = statistics.median(work(size) for _ in range(options.repeat))
        if comem.rank == 0:
            print(f"{options.what} size={size} seconds={seconds:.6f}")


if __name__ == "__main__":
    main()
