"""How long a cluster takes: to start, to hand over an array, to run a function, to notice that a worker died.

    python bench/python/cluster.py [NODES]

Prints seconds. Each start and each loss is an interpreter of its own; the rest are medians.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 5

START = """
import time
began = time.perf_counter()
import comem
imported = time.perf_counter()
c = comem.Cluster({nodes})
print(imported - began, time.perf_counter() - imported)
"""

LOSS = """
import os, signal, time
import comem
c = comem.Cluster({nodes})
pids = c.run(os.getpid)
def wait():
    comem.barrier() if comem.rank == 0 else time.sleep(60)
import threading
at = []
def kill():
    at.append(time.perf_counter())
    os.kill(pids[1], signal.SIGKILL)
threading.Timer(0.5, kill).start()
try:
    c.run(wait)
except comem.NodeLost:
    print(time.perf_counter() - at[0])
"""


def alone(text, nodes):
    """What a program printed, as numbers."""
    result = subprocess.run(
        [sys.executable, "-c", text.format(nodes=nodes)], capture_output=True, text=True, check=True
    )
    return [float(word) for word in result.stdout.split()]


def timed(work):
    """Seconds of a call, the median of some."""
    seconds = []
    for _ in range(4 * ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main():
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    starts = [alone(START, nodes) for _ in range(ROUNDS)]
    print(f"import comem                           {statistics.median(s[0] for s in starts):.4f}")
    print(f"start of Cluster({nodes})                    {statistics.median(s[1] for s in starts):.4f}")

    import comem
    import numpy as np

    with comem.Cluster(nodes) as c:
        print(f"run of a function that does nothing    {timed(lambda: c.run(int)):.4f}")
        a = c.zeros(256 << 20, dtype=np.uint8)
        print(f"256 MiB, fresh, to all nodes           {timed(lambda: c.run(np.shape, a)):.4f}")
        a[:] = 1
        began = time.perf_counter()
        c.run(np.shape, a)
        print(f"256 MiB, just filled here, once        {time.perf_counter() - began:.4f}")
        print(f"256 MiB, filled before, to all nodes   {timed(lambda: c.run(np.shape, a)):.4f}")
        print(f"map of 1000 items that do nothing      {timed(lambda: c.map(abs, range(1000))):.4f}")
    print(
        f"NodeLost after a worker is killed      {statistics.median(alone(LOSS, nodes)[0] for _ in range(ROUNDS)):.4f}"
    )


if __name__ == "__main__":
    main()
