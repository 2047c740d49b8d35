"""PageRank of a random web: the links are a sparse matrix (CSR) in shared memory, frozen; the ranks are shared and
written.

    comem run -n 4 python pagerank.py [--pages 100000] [--picture pagerank.png]
"""

import argparse
import time

import numpy as np

import comem

DAMPING = 0.85


def web(pages: int) -> tuple:
    """A random web in CSR form: for each page, the pages that link to it; and how many links each page has."""
    random = np.random.default_rng(3)
    links = random.zipf(1.7, pages * 8) % pages
    sources = random.integers(pages, size=len(links))
    order = np.argsort(links, kind="stable")
    starts = np.searchsorted(links[order], np.arange(pages + 1))
    return starts, sources[order], np.bincount(sources, minlength=pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--picture", help="file to draw the ranks into")
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    n = 3000 if options.small else options.pages

    made = web(n) if comem.rank == 0 else (None, None, None)
    starts, sources, degrees = (comem.freeze(comem.array(part, home="block")) for part in made)
    ranks, next_ranks = (comem.full(n, 1.0 / n, home="block", name=f"ranks {i}") for i in range(2))
    mine = comem.split(n)

    low, high = int(starts[mine.start]), int(starts[mine.stop])
    links = np.array(sources[low:high])
    weight = 1.0 / np.maximum(degrees, 1)
    offsets = np.array(starts[mine.start : mine.stop + 1]) - low
    start = time.perf_counter()
    for _ in range(options.steps):
        lost = comem.allreduce(float(ranks[mine][degrees[mine] == 0].sum()))
        sums = np.concatenate([[0.0], np.cumsum(ranks[links] * weight[links])])
        next_ranks[mine] = (1 - DAMPING + DAMPING * lost) / n + DAMPING * np.diff(sums[offsets])
        comem.barrier()
        ranks, next_ranks = next_ranks, ranks
    seconds = time.perf_counter() - start

    change = comem.allreduce(float(np.abs(ranks[mine] - next_ranks[mine]).sum()))
    if comem.rank == 0:
        assert abs(ranks.sum() - 1) < 1e-6, "the ranks do not add up to one"
        assert change < 1e-3, "the ranks still change"
        first = np.argsort(-ranks)[:3].tolist()
        print(f"pagerank: {n} pages, {len(sources)} links, {comem.size} nodes: first {first}, {seconds:.3f} s")
        if options.picture:
            import matplotlib.pyplot as plt

            figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
            axes.loglog(np.diff(starts) + 1, ranks * n, ".", ms=2)
            axes.set(xlabel="links to the page, and one", ylabel="rank x pages", title=f"the ranks of {n} pages")
            figure.savefig(options.picture, dpi=80)
    comem.barrier()


if __name__ == "__main__":
    main()
