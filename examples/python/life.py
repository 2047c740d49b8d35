"""Conway's Game of Life on a torus; with --plot, node 0 shows every generation as it comes.

    comem run -n 4 python life.py [--size 1024] [--steps 200] [--plot] [--picture life.png]
"""

import argparse
import time

import numpy as np

import comem

#: Gosper's gun, which sends out a glider of five cells every 30 generations.
GUN = """
........................O...........
......................O.O...........
............OO......OO............OO
...........O...O....OO............OO
OO........O.....O...OO..............
OO........O...O.OO....O.O...........
..........O.....O.......O...........
...........O...O....................
............OO......................
""".split()
GUN_AT = np.s_[2:11, 2:38]
PERIOD = 30


def gun() -> np.ndarray:
    """The gun, as an array."""
    return np.array([[cell == "O" for cell in line.ljust(36)] for line in GUN], np.uint8)


def generation(now: np.ndarray, then: np.ndarray) -> None:
    """Computes this node's rows of the next generation."""
    rows = comem.split(len(now))
    if rows.start == rows.stop:
        return
    # Its rows with the ones above and below, which belong to neighbours.
    band = now.take(range(rows.start - 1, rows.stop + 1), axis=0, mode="wrap")
    sums = band[:-2] + band[1:-1] + band[2:]
    sums = np.roll(sums, 1, axis=1) + sums + np.roll(sums, -1, axis=1)
    then[rows] = (sums == 3) | ((sums == 4) & (band[1:-1] == 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="rows and columns, at least 64")
    parser.add_argument("--steps", type=int, default=210)
    parser.add_argument("--plot", action="store_true", help="show the world as it goes")
    parser.add_argument("--picture", help="file to draw the last generation into")
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    size, steps = (64, 60) if options.small else (options.size, options.steps)

    now, then = (comem.zeros((size, size), dtype=np.uint8, home="block", name=f"world {i}") for i in range(2))
    if comem.rank == 0:
        now[GUN_AT] = gun()
    comem.barrier()

    shown = None
    if options.plot and comem.rank == 0:
        import matplotlib.pyplot as plt

        shown = plt.imshow(now, cmap="binary")
    start = time.perf_counter()
    for _ in range(steps):
        generation(now, then)
        comem.barrier()
        now, then = then, now
        if shown is not None:
            shown.set_data(now)
            plt.pause(0.01)
    seconds = time.perf_counter() - start

    if comem.rank == 0:
        # A glider moves one field down and right in four generations; none may have come round to the gun.
        gliders, rest = divmod(steps, PERIOD)
        if rest == 0 and steps < 4 * (size - 50):
            assert now.sum() == gun().sum() + 5 * gliders, "not as many gliders as there have been shots"
            assert np.array_equal(now[GUN_AT], gun()), "the gun is damaged"
        print(
            f"life: {size} x {size}, {steps} generations, {comem.size} nodes: {int(now.sum())} alive, {seconds:.3f} s"
        )
        if options.picture:
            import matplotlib.pyplot as plt

            figure, axes = plt.subplots(figsize=(5, 4.4), layout="constrained")
            axes.imshow(now, cmap="binary", interpolation="nearest")
            for node in range(1, comem.size):
                axes.axhline(size * node / comem.size - 0.5, color="tab:red", lw=1.2, ls="--")
            for node in range(comem.size):
                axes.text(0.98 * size, size * (node + 0.5) / comem.size, f"node {node}", color="tab:red", ha="right")
            axes.set_title(f"generation {steps} on {comem.size} nodes")
            figure.savefig(options.picture, dpi=80)
    comem.barrier()


if __name__ == "__main__":
    main()
