"""The same heat and k-means in the ways that a user of NumPy could pick, to compare Comem with them.

    python pick.py heat|kmeans one|threads|multiprocessing|dask [--size N] [--steps N] [--workers N]
    mpirun -n 2 python pick.py heat|kmeans mpi4py [--size N] [--steps N]
    comem run -n 2 python pick.py heat|kmeans comem [--size N] [--steps N]

Each prints the seconds of the steps and a checksum of the result, which is the same number for all ways, and for
workloads/heat.c and workloads/kmeans.c. `comem-bench pick` runs them in turn.
"""

import argparse
import contextlib
import multiprocessing
import pathlib
import sys
import threading
import time
from multiprocessing import shared_memory

import numpy as np

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"

MIDDLES = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [5, 5]], float)
ASIDE = np.array([[1, 1], [-2, 1], [1, -2], [-1, -1], [0.5, -0.5]])


def part(total, workers, rank):
    """Part number ``rank`` of as many as there are workers."""
    return slice(total * rank // workers, total * (rank + 1) // workers)


def mix(x):
    """Mixes 64-bit numbers well (splitmix64), as workloads/common.h does."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def checksum(numbers, first=0):
    """What numbers number ``first`` and following add to the checksum, whoever has them."""
    places = np.arange(first, first + numbers.size, dtype=np.uint64)
    return int(mix(numbers.ravel() + places).sum())


# ---- heat


def plate_of(size, rows=slice(None)):
    """These rows of a plate whose upper edge is hot."""
    plate = np.zeros((size, size))[rows]
    if rows.start in (None, 0):
        plate[0] = 100.0
    return plate


def heat_step(now, then, scratch):
    """A step of all rows but the first and the last."""
    np.add(now[:-2, 1:-1], now[2:, 1:-1], out=scratch)
    scratch += now[1:-1, :-2]
    scratch += now[1:-1, 2:]
    np.multiply(scratch, 0.25, out=then[1:-1, 1:-1])


def heat_steps(plates, steps, before=lambda now: None, after=lambda: None):
    """Steps of these rows of two plates."""
    scratch = np.empty((len(plates[0]) - 2, plates[0].shape[1] - 2))
    for step in range(steps):
        now, then = plates[step % 2], plates[(step + 1) % 2]
        before(now)
        heat_step(now, then, scratch)
        after()


def heat_sum(plate, first=0):
    return checksum(np.ascontiguousarray(plate).view(np.uint64), first)


def with_edges(mine):
    """Some of the rows within the edges, by their numbers in the plate, with the row above and the one below."""
    return slice(mine.start, mine.stop + 2)


# ---- k-means


def points_of(count, mine=slice(None)):
    """These of the points of workloads/kmeans.h."""
    number = np.uint64(3) * np.arange(count, dtype=np.uint64)[mine]
    spread = [((mix(number + np.uint64(k)) >> np.uint64(52)).astype(np.int64) - 2048) / 1024 for k in (1, 2)]
    return MIDDLES[(mix(number) % np.uint64(5)).astype(np.int64)] + np.stack(spread, axis=1)


def kmeans_step(points, labels, centres):
    """Labels points with the nearest centre; gives the sums of each centre's points, and how many there are."""
    labels[:] = ((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1)
    sums = np.zeros((len(centres), 3))
    for j in range(len(centres)):
        chosen = points[labels == j]
        sums[j, :2], sums[j, 2] = chosen.sum(axis=0), len(chosen)
    return sums


def kmeans_steps(points, labels, steps, add):
    """Steps with these points; ``add`` gives the sums of all workers. Gives the centres."""
    centres = MIDDLES + ASIDE
    for step in range(steps):
        sums = add(step, kmeans_step(points, labels, centres))
        centres = sums[:, :2] / sums[:, 2:]
    return centres


def label_sum(labels, first=0):
    return checksum(labels.astype(np.uint64), first)


def centre_sum(centres):
    return checksum(np.ascontiguousarray(centres).view(np.uint64))


# ---- workers that share memory: threads of one process, or processes


def share_heat(rank, workers, plates, wait, steps):
    """One worker's steps; gives their seconds."""
    rows = with_edges(part(len(plates[0]) - 2, workers, rank))
    mine = [plate[rows] for plate in plates]
    wait()
    start = time.perf_counter()
    heat_steps(mine, steps, after=wait)
    return time.perf_counter() - start


def share_kmeans(rank, workers, points, labels, sums, wait, steps):
    """One worker's steps; gives their seconds and the centres. Sums of two steps are kept, so nobody needs to wait
    until all have read them."""
    mine = part(len(points), workers, rank)

    def add(step, own):
        sums[step % 2, rank] = own
        wait()
        return sums[step % 2].sum(axis=0)

    wait()
    start = time.perf_counter()
    centres = kmeans_steps(points[mine], labels[mine], steps, add)
    wait()
    return time.perf_counter() - start, centres


def memory_of(what, size, workers):
    """What the workers share."""
    if what == "heat":
        return [plate_of(size) for _ in range(2)]
    return [points_of(size), np.zeros(size, np.int8), np.zeros((2, workers, len(MIDDLES), 3))]


def share(rank, what, workers, memory, wait, steps, tell):
    """One worker: tells what it found by its number."""
    if what == "heat":
        tell(rank, share_heat(rank, workers, memory, wait, steps))
    else:
        tell(rank, share_kmeans(rank, workers, *memory, wait, steps))


def answer_of(what, memory, steps, found):
    """The seconds and the checksum, after worker 0 has found this."""
    if what == "heat":
        return found, heat_sum(memory[steps % 2])
    return found[0], label_sum(memory[1]) + centre_sum(found[1])


def by_threads(what, options):
    workers, results = options.workers, {}
    wait = threading.Barrier(workers).wait
    memory = memory_of(what, options.size, workers)
    rest = (what, workers, memory, wait, options.steps, results.__setitem__)
    threads = [threading.Thread(target=share, args=(rank, *rest)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answer_of(what, memory, options.steps, results[0])


def process(rank, what, workers, names, shapes, barrier, steps, answers):
    """A process beside others: finds the shared memory by its names."""
    with contextlib.ExitStack() as stack:
        blocks = [shared_memory.SharedMemory(name) for name in names]
        for block in blocks:
            stack.callback(block.close)
        memory = [np.ndarray(shape, dtype, buffer=block.buf) for block, (shape, dtype) in zip(blocks, shapes)]
        share(rank, what, workers, memory, barrier.wait, steps, lambda rank, found: rank or answers.put(found))
        del memory


def by_multiprocessing(what, options):
    workers, context = options.workers, multiprocessing.get_context("spawn")
    made = memory_of(what, options.size, workers)
    blocks = [shared_memory.SharedMemory(create=True, size=a.nbytes) for a in made]
    shared = [np.ndarray(a.shape, a.dtype, buffer=block.buf) for a, block in zip(made, blocks)]
    for a, b in zip(made, shared):
        b[...] = a
    barrier, answers = context.Barrier(workers), context.SimpleQueue()
    names, shapes = [block.name for block in blocks], [(a.shape, a.dtype.str) for a in made]
    arguments = (what, workers, names, shapes, barrier, options.steps, answers)
    processes = [context.Process(target=process, args=(rank, *arguments)) for rank in range(workers)]
    for one in processes:
        one.start()
    found = answers.get()
    for one in processes:
        one.join()
    result = answer_of(what, shared, options.steps, found)
    del shared, b
    for block in blocks:
        block.close()
        block.unlink()
    return result


def by_one(what, options):
    memory, found = memory_of(what, options.size, 1), {}
    share(0, what, 1, memory, lambda: None, options.steps, found.__setitem__)
    return answer_of(what, memory, options.steps, found[0])


# ---- messages


def by_mpi4py(what, options):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, workers, size = comm.rank, comm.size, options.size
    if what == "heat":
        rows = with_edges(part(size - 2, workers, rank))
        plates = [plate_of(size, rows) for _ in range(2)]
        above = rank - 1 if rank > 0 else MPI.PROC_NULL
        below = rank + 1 if rank < workers - 1 else MPI.PROC_NULL

        def exchange(now):
            comm.Sendrecv(now[1], above, recvbuf=now[-1], source=below)
            comm.Sendrecv(now[-2], below, recvbuf=now[0], source=above)

        comm.Barrier()
        start = time.perf_counter()
        heat_steps(plates, options.steps, before=exchange)
        comm.Barrier()
        seconds = time.perf_counter() - start
        top, bottom = int(rank > 0), size if rank == workers - 1 else rows.stop - 1
        mine = plates[options.steps % 2][top : bottom - rows.start]
        own = heat_sum(mine, (rows.start + top) * size)
    else:
        mine = part(size, workers, rank)
        points, labels = points_of(size, mine), np.zeros(mine.stop - mine.start, np.int8)

        def add(step, sums):
            comm.Allreduce(MPI.IN_PLACE, sums)
            return sums

        comm.Barrier()
        start = time.perf_counter()
        centres = kmeans_steps(points, labels, options.steps, add)
        comm.Barrier()
        seconds = time.perf_counter() - start
        own = label_sum(labels, mine.start) + (centre_sum(centres) if rank == 0 else 0)
    own_sums = comm.gather(own)
    return (seconds, sum(own_sums)) if rank == 0 else None


# ---- graphs of tasks


def by_dask(what, options):
    """Dask's threads: NumPy lets go of the interpreter's lock."""
    import dask
    import dask.array

    rows = -(-options.size // options.workers)

    def cells(block):
        then = block.copy()
        heat_step(block, then, np.empty((len(block) - 2, block.shape[1] - 2)))
        return then

    def labelled(block, centres):
        labels = np.empty(len(block), np.int8)
        return kmeans_step(block, labels, centres), labels

    with dask.config.set(scheduler="threads", num_workers=options.workers):
        if what == "heat":
            plate = dask.array.from_array(plate_of(options.size), chunks=(rows, options.size)).persist()
            start = time.perf_counter()
            for _ in range(options.steps):
                plate = plate.map_overlap(cells, depth={0: 1, 1: 0}, boundary="none", meta=np.empty((0, 0))).persist()
            return time.perf_counter() - start, heat_sum(plate.compute())
        points = points_of(options.size)
        blocks = [points[low : low + rows] for low in range(0, options.size, rows)]
        blocks = [dask.delayed(block, pure=False).persist() for block in blocks]
        centres = MIDDLES + ASIDE
        start = time.perf_counter()
        for _ in range(options.steps):
            found = dask.compute(*(dask.delayed(labelled)(block, centres) for block in blocks))
            sums = sum(sums for sums, _ in found)
            centres = sums[:, :2] / sums[:, 2:]
        seconds = time.perf_counter() - start
        return seconds, label_sum(np.concatenate([labels for _, labels in found])) + centre_sum(centres)


# ---- Comem, by the examples' own code


def by_comem(what, options):
    import comem

    sys.path.insert(0, str(EXAMPLES))
    import heat
    import kmeans

    if what == "heat":
        plates = [comem.zeros((options.size, options.size), home="block") for _ in range(2)]
        if comem.rank == 0:
            for plate in plates:
                plate[0] = 100.0
        comem.barrier()
        start = time.perf_counter()
        result = heat.steps(*plates, options.steps)
        seconds = time.perf_counter() - start
        answer = (seconds, heat_sum(result)) if comem.rank == 0 else None
    else:
        made = points_of(options.size) if comem.rank == 0 else None
        points = comem.freeze(comem.array(made, home="block"))
        labels = comem.zeros(options.size, dtype=np.int8, home="block")
        comem.barrier()
        start = time.perf_counter()
        centres = kmeans.cluster(points, labels, MIDDLES + ASIDE, options.steps)
        comem.barrier()
        seconds = time.perf_counter() - start
        answer = (seconds, label_sum(labels) + centre_sum(centres)) if comem.rank == 0 else None
    comem.barrier()
    return answer


WAYS = {
    "one": by_one,
    "threads": by_threads,
    "multiprocessing": by_multiprocessing,
    "mpi4py": by_mpi4py,
    "dask": by_dask,
    "comem": by_comem,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("heat", "kmeans"))
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--size", type=int, help="rows and columns of the plate, or points")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.size = options.size or {"heat": 1000, "kmeans": 200_000}[options.what]
    options.steps = options.steps or {"heat": 200, "kmeans": 20}[options.what]
    result = WAYS[options.way](options.what, options)
    if result is not None:
        seconds, total = result
        print(f"{options.what} way={options.way} time_s={seconds:.6f} checksum={total % 2**64:016x}")


if __name__ == "__main__":
    main()
