"""The heat example as processes of one host over multiprocessing.shared_memory, to compare with.

    python heat_shared_memory.py [--processes 2] [--size 1000] [--steps 200]
"""

import argparse
import multiprocessing as mp
import time
from multiprocessing import shared_memory

import numpy as np


def work(rank, processes, names, size, count, barrier, seconds):
    blocks = [shared_memory.SharedMemory(name) for name in names]
    now, then = (np.ndarray((size, size), buffer=block.buf) for block in blocks)
    base, more = divmod(size - 2, processes)
    low = rank * base + min(rank, more) + 1
    high = low + base + (rank < more)
    scratch = np.empty((high - low, size - 2))
    barrier.wait()
    start = time.perf_counter()
    for _ in range(count):
        np.add(now[low - 1 : high - 1, 1:-1], now[low + 1 : high + 1, 1:-1], out=scratch)
        scratch += now[low:high, :-2]
        scratch += now[low:high, 2:]
        np.multiply(scratch, 0.25, out=then[low:high, 1:-1])
        barrier.wait()
        now, then = then, now
    if rank == 0:
        seconds.value = time.perf_counter() - start
    del now, then
    for block in blocks:
        block.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    size, count = options.size, options.steps
    blocks = [shared_memory.SharedMemory(create=True, size=size * size * 8) for _ in range(2)]
    plates = [np.ndarray((size, size), buffer=block.buf) for block in blocks]
    for plate in plates:
        plate[...] = 0
        plate[0] = 100.0
    context = mp.get_context("spawn")
    barrier, seconds = context.Barrier(options.processes), context.Value("d")
    names = [block.name for block in blocks]
    arguments = (options.processes, names, size, count, barrier, seconds)
    workers = [context.Process(target=work, args=(rank, *arguments)) for rank in range(options.processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    total = plates[count % 2][1:-1].sum()
    print(
        f"heat: {size} x {size}, {count} steps, {options.processes} processes: sum {total:.6e}, {seconds.value:.3f} s"
    )
    del plates, plate
    for block in blocks:
        block.close()
        block.unlink()


if __name__ == "__main__":
    main()
