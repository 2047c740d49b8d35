"""Heat in a plate: each node computes its rows from their neighbours', in shared memory.

    comem run -n 4 python heat.py [--size 1000] [--steps 200] [--picture heat.png]
"""

import argparse
import time

import numpy as np

import comem


def steps(now: np.ndarray, then: np.ndarray, count: int) -> np.ndarray:
    """Runs ``count`` time steps; gives the array with the last."""
    rows = comem.split(len(now) - 2)
    low, high = rows.start + 1, rows.stop + 1
    scratch = np.empty((high - low, now.shape[1] - 2))
    for _ in range(count):
        np.add(now[low - 1 : high - 1, 1:-1], now[low + 1 : high + 1, 1:-1], out=scratch)
        scratch += now[low:high, :-2]
        scratch += now[low:high, 2:]
        np.multiply(scratch, 0.25, out=then[low:high, 1:-1])
        comem.barrier()
        now, then = then, now
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--picture", help="file to draw the plate into")
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    size, count = (66, 30) if options.small else (options.size, options.steps)

    plates = [comem.zeros((size, size), home="block", name=f"plate {i}") for i in range(2)]
    if comem.rank == 0:
        for plate in plates:
            plate[0] = 100.0  # the upper edge is hot
    comem.barrier()

    start = time.perf_counter()
    result = steps(*plates, count)
    seconds = time.perf_counter() - start

    # Away from its edges a plate that starts cold stays symmetric, and no part is hotter than the edge.
    mine = result[1:-1][comem.split(size - 2)]
    wrong = comem.allreduce(int(not np.allclose(mine, mine[:, ::-1]) or mine.max() > 100 or mine.min() < 0))
    total = comem.allreduce(float(mine.sum()))
    if comem.rank == 0:
        if options.small:
            alone = [np.zeros((size, size)) for _ in range(2)]
            for plate in alone:
                plate[0] = 100.0
            now, then = alone
            for _ in range(count):
                then[1:-1, 1:-1] = 0.25 * (now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:])
                now, then = then, now
            assert np.allclose(result, now), "the plate is not that of one process"
        assert not wrong, "the plate is not symmetric"
        print(f"heat: {size} x {size}, {count} steps, {comem.size} nodes: sum {total:.6e}, {seconds:.3f} s")
        if options.picture:
            import matplotlib.pyplot as plt

            figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
            figure.colorbar(axes.imshow(result, cmap="inferno"), label="degrees")
            # Dashes of two colours are seen on every colour.
            for node in range(1, comem.size):
                for colour, dashes in (("black", "-"), ("white", "--")):
                    axes.axhline(size * node / comem.size - 0.5, color=colour, lw=1.5, ls=dashes)
            for node in range(comem.size):
                axes.text(0.02 * size, size * (node + 0.5) / comem.size, f"node {node}", color="white", va="center")
            axes.set_title(f"{size} x {size} cells after {count} steps on {comem.size} nodes")
            figure.savefig(options.picture, dpi=80)
    comem.barrier()


if __name__ == "__main__":
    main()
