"""A Bloom filter that need not fit the memory of one node: its bytes live on all of them, copies of others' only as the
cache allows.

    comem run -n 4 --cache 64M python bloom.py [--bytes 256000000] [--keys 100000] [--picture bloom.png]
"""

import argparse
import os
import time

import numpy as np

import comem

HASHES = 4


def places(keys: np.ndarray, bits: int) -> np.ndarray:
    """Where the bits of keys are: HASHES for each."""
    odd = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)
    mixed = keys.astype(np.uint64)[:, None] * odd[:HASHES]
    mixed ^= mixed >> np.uint64(29)
    return (mixed * odd[::-1][:HASHES]) % np.uint64(bits)


def add(filter_: np.ndarray, keys: np.ndarray) -> None:
    """Puts this node's part of the keys' bits in: each node sets the bits in its own block, so nobody writes the same
    byte."""
    rows = comem.split(len(filter_))
    at = places(keys, len(filter_) * 8).ravel()
    at = at[(at >= rows.start * 8) & (at < rows.stop * 8)].astype(np.int64)
    np.bitwise_or.at(filter_, at >> 3, (1 << (at & 7)).astype(np.uint8))


def holds(filter_: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Whether each key was put in, or looks like it."""
    at = places(keys, len(filter_) * 8).astype(np.int64)
    return ((filter_[at >> 3] >> (at & 7).astype(np.uint8)) & 1).all(axis=1)


def draw(path: str, nbytes: int, copies: np.ndarray) -> None:
    """Draws what nodes fetched of the filter and how much of that they still had at the end."""
    import matplotlib.pyplot as plt

    fetched, kept = copies[:, 0] / 256, (copies[:, 0] - copies[:, 1]) / 256
    nodes = np.arange(len(copies))
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.bar(nodes - 0.2, fetched, 0.4, label="fetched")
    axes.bar(nodes + 0.2, kept, 0.4, label="kept at the end")
    axes.axhline(nbytes / (1 << 20), color="black", ls="--", label="the filter")
    axes.set_xticks(nodes, [f"node {node}" for node in nodes])
    axes.set_title(
        f"a filter of {nbytes / (1 << 20):.0f} MiB; each node may keep {os.environ.get('COMEM_CACHE', 'much')}"
    )
    axes.set(yscale="log", ylim=(1, 4 * fetched.max(initial=1)), ylabel="MiB")
    axes.legend(loc="upper center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=256_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--picture", help="file to draw the nodes' copies into")
    parser.add_argument("--small", action="store_true", help="a small size, for tests")
    options = parser.parse_args()
    nbytes = 4_000_000 if options.small else options.bytes
    many = 3_000 if options.small else options.keys

    filter_ = comem.zeros(nbytes, dtype=np.uint8, home="block", name="filter")
    keys = np.random.default_rng(11).integers(0, 1 << 40, many)
    strangers = keys + (1 << 41)

    start = time.perf_counter()
    add(filter_, keys)
    comem.barrier()
    # Every node asks for its part of the keys, anywhere in the filter.
    mine = comem.split(many)
    missing = comem.allreduce(int((~holds(filter_, keys[mine])).sum()))
    mistaken = comem.allreduce(int(holds(filter_, strangers[mine]).sum()))
    seconds = time.perf_counter() - start

    pages = comem.stats()["pages"]
    # By node: what it has fetched, and what it has given up again.
    copies = np.zeros((comem.size, 2))
    copies[comem.rank] = pages["pages_fetched"], pages["evictions"]
    copies = comem.allreduce(copies)
    fetched, evicted = int(copies[:, 0].sum()), int(copies[:, 1].sum())
    if comem.rank == 0:
        assert missing == 0, f"{missing} keys are missing"
        assert mistaken <= many // 100, f"{mistaken} of {many} strangers were taken for keys"
        print(
            f"bloom: {nbytes} bytes, {many} keys, {comem.size} nodes: {mistaken} mistaken, "
            f"{fetched} pages fetched, {evicted} given up, {seconds:.3f} s"
        )
        if options.picture:
            draw(options.picture, nbytes, copies)
    comem.barrier()


if __name__ == "__main__":
    main()
