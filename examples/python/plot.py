"""Where a cluster's time went, and which node owned and fetched what of which array: what ``Cluster.plot`` draws.

    python plot.py [--nodes 4] [--picture plot.png]
"""

import argparse

import numpy as np

import comem


def smooth(a: np.ndarray, out: np.ndarray) -> None:
    """Each node its rows; the first and the last need a neighbour's."""
    rows = comem.split(len(a) - 2)
    low, high = rows.start + 1, rows.stop + 1
    for _ in range(20):
        out[low:high] = (a[low - 1 : high - 1] + a[low:high] + a[low + 1 : high + 1]) / 3
        comem.barrier()
        a, out = out, a


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--picture", default="plot.png", help="file to draw into")
    options = parser.parse_args()
    # On one host there is one memory, where nothing is fetched, unless a protocol is named.
    with comem.Cluster(options.nodes, engine="hlrc") as c:
        a = c.array(np.random.default_rng(1).random((1200, 1024)), home="block", name="a")
        out = c.zeros((1200, 1024), home="block", name="out")
        table = c.array(np.arange(1 << 18), name="table, filled by node 0")
        c.run(smooth, a, out)
        totals = c.run(np.sum, table)
        assert set(totals) == {table.sum()}
        c.plot().savefig(options.picture, dpi=80)


if __name__ == "__main__":
    main()
