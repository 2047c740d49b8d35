"""Matrix product with BLAS: each node multiplies its rows of A by all of B, straight from and into shared memory.

    comem run -n 4 python matmul.py [--size 2000] [--picture matmul.png]
"""

import argparse
import time

import numpy as np

import comem


def fetched() -> int:
    """How many pages this node has fetched from others."""
    return comem.stats()["pages"]["pages_fetched"]


def draw(path: str, c: np.ndarray, moved: list) -> None:
    """Draws the product, each node's rows in another colour, with what the node fetched for them."""
    import matplotlib.pyplot as plt

    n = len(c)
    colors = plt.get_cmap("Set2")(np.arange(n) * comem.size // n)[:, None, :3]
    shade = (c - c.min()) / max(1, np.ptp(c))
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.imshow(colors * (0.6 + 0.4 * shade[:, :, None]))
    for node, pages in enumerate(moved):
        text = f"node {node}: {pages * 4 / 1024:.1f} MiB fetched"
        axes.text(n / 2, n * (node + 0.5) / comem.size, text, ha="center", va="center")
    axes.set_title(f"C = A·B, {n} x {n}: rows by the node that computed them")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--picture", help="file to draw who computed and who fetched what into")
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    n = 150 if options.small else options.size

    a, b, c = (comem.zeros((n, n), home="block", name=name) for name in "abc")
    random = np.random.default_rng(comem.rank)
    comem.block(a)[...] = random.integers(0, 10, comem.block(a).shape)
    comem.block(b)[...] = random.integers(0, 10, comem.block(b).shape)
    comem.barrier()
    comem.freeze(b)

    before = fetched()
    start = time.perf_counter()
    np.matmul(comem.block(a), b, out=comem.block(c))
    comem.barrier()
    seconds = time.perf_counter() - start

    moved = [int(pages) for pages in comem.allreduce(np.eye(comem.size)[comem.rank] * (fetched() - before))]

    # Whole numbers: the sums are exact. C·x must be A·(B·x), for an x that nobody could guess.
    x = comem.broadcast(np.random.default_rng().integers(0, 100, n).astype(float) if comem.rank == 0 else None)
    wrong = comem.allreduce(int(not np.array_equal(comem.block(c) @ x, comem.block(a) @ (b @ x))))
    if comem.rank == 0:
        assert not wrong, "the product is wrong"
        rate = 2 * n**3 / seconds / 1e9
        print(f"matmul: {n} x {n}, {comem.size} nodes: right, {seconds:.3f} s, {rate:.1f} GFlop/s")
        if options.picture:
            draw(options.picture, c, moved)
    comem.barrier()


if __name__ == "__main__":
    main()
