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


def cluster(points: np.ndarray, labels: np.ndarray, centres: np.ndarray, steps: int) -> np.ndarray:
    """Labels each point with its nearest centre and moves the centres to the middles of their points, some times; gives
    the centres."""
    mine = comem.split(len(points))
    for _ in range(steps):
        labels[mine] = assign(points[mine], centres)
        sums = np.zeros((len(centres), 3))
        for j in range(len(centres)):
            chosen = points[mine][labels[mine] == j]
            sums[j, :2], sums[j, 2] = chosen.sum(axis=0), len(chosen)
        sums = comem.allreduce(sums)
        centres = sums[:, :2] / sums[:, 2:]
    return centres


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
    start = time.perf_counter()
    centres = np.array(middles) + [[1, 1], [-2, 1], [1, -2], [-1, -1], [0.5, -0.5]]
    centres = cluster(points, labels, centres, options.steps)
    seconds = time.perf_counter() - start
    comem.barrier()

    if comem.rank == 0:
        assert np.abs(centres - middles).max() < 0.3, "the centres are not where the points were made"
        assert np.array_equal(labels, assign(points, centres)) or options.steps < 20, "labels do not fit the centres"
        print(f"kmeans: {n} points, {comem.size} nodes: {np.round(centres, 1).tolist()}, {seconds:.3f} s")
        if options.picture:
            import matplotlib.pyplot as plt

            some = slice(None, None, max(1, n // 5000))
            figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
            axes.scatter(*points[some].T, c=labels[some], s=1, cmap="Set2")
            axes.plot(*centres.T, "k+", ms=12, mew=2)
            axes.set_title(f"{n} points, and the centres that were found")
            figure.savefig(options.picture, dpi=80)
    comem.barrier()


if __name__ == "__main__":
    main()
