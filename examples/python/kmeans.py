"""k-means: the points are shared and frozen, each node assigns its part of them to the nearest centre.

    comem run -n 4 python kmeans.py [--points 200000] [--picture kmeans.png]
"""

import argparse
import time

import numpy as np

import comem


def assign(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The number of the nearest centre, for each point."""
    distances = (centres**2).sum(axis=1) - 2 * points @ centres.T
    return distances.argmin(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--picture", help="file to draw the points into")
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    n, k = (2000 if options.small else options.points), 5

    # Five clouds whose middles are known, mixed.
    middles = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [5, 5]], float)
    random = np.random.default_rng(7)
    made = middles[random.integers(k, size=n)] + random.standard_normal((n, 2)) if comem.rank == 0 else None
    points = comem.freeze(comem.array(made, home="block", name="points"))
    labels = comem.zeros(n, dtype=np.int8, home="block", name="labels")
    mine = comem.split(n)

    start = time.perf_counter()
    centres = np.array(middles) + [[1, 1], [-2, 1], [1, -2], [-1, -1], [0.5, -0.5]]
    for _ in range(options.steps):
        labels[mine] = assign(points[mine], centres)
        sums = np.zeros((k, 3))
        for j in range(k):
            chosen = points[mine][labels[mine] == j]
            sums[j, :2], sums[j, 2] = chosen.sum(axis=0), len(chosen)
        sums = comem.allreduce(sums)
        centres = sums[:, :2] / sums[:, 2:]
    seconds = time.perf_counter() - start
    comem.barrier()

    if comem.rank == 0:
        assert np.abs(centres - middles).max() < 0.3, "the centres are not where the points were made"
        assert np.array_equal(labels, assign(points, centres)) or options.steps < 20, "labels do not fit the centres"
        print(f"kmeans: {n} points, {comem.size} nodes: {np.round(centres, 1).tolist()}, {seconds:.3f} s")
        if options.picture:
            import matplotlib.pyplot as plt

            plt.scatter(*points[::10].T, c=labels[::10], s=1)
            plt.savefig(options.picture)
    comem.barrier()


if __name__ == "__main__":
    main()
