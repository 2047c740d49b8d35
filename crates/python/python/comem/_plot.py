"""Pictures of what a cluster did: where the time went, and which node fetched what."""

from __future__ import annotations

import functools
import io
from typing import Any, Dict, List, Sequence

from ._errors import ArgumentError

#: The parts of the time as `comem report` shows them: the first five are the threads', the sixth the service thread's
#: own.
PARTS = ("compute", "fetch", "lock", "barrier", "protocol", "service")
COLORS = ("#4c9f70", "#d1495b", "#edae49", "#3066be", "#8d6a9f", "#9a9a9a")
#: What is counted of each array on each node.
COUNTS = ("pages_owned", "pages_fetched", "diff_bytes", "faults")
#: Most arrays in a picture; those that cost most.
ARRAYS_MAX = 12
#: Above pictures with arrays of which all nodes map one copy.
UNOBSERVED = "Under hardware nobody notices which node uses which pages: Cluster(rehearse=True) has a protocol"


def arrays_of(stats: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The shared arrays and what each node fetched and sent of them, the dearest first.

    Parameters
    ----------
    stats : list of dict
        By node, as :meth:`comem.Cluster.stats` gives them.

    Returns
    -------
    list of dict
        ``label``, ``bytes``, ``engine``, and by node ``pages_owned`` (which have their home there), ``pages_fetched``,
        ``diff_bytes`` (of changes sent to pages' homes elsewhere), ``faults``.
    """
    found: Dict[int, Dict[str, Any]] = {}
    for node, one in enumerate(stats):
        for region in one.get("regions", []):
            new = {"label": region.get("label", ""), "bytes": region["bytes"], "engine": region.get("engine", "")}
            new.update({count: [0] * len(stats) for count in COUNTS})
            about = found.setdefault(region["address"], new)
            for count in COUNTS:
                about[count][node] += region.get(count, 0)
    return sorted(found.values(), key=lambda about: -sum(about["pages_fetched"]) - sum(about["faults"]))


@functools.lru_cache(maxsize=1)
def _picture() -> Any:
    """The class of figures that a notebook shows. It shows bare ones as text, unless pyplot has made them."""
    from matplotlib.figure import Figure

    class Picture(Figure):  # type: ignore[misc]
        """A figure that shows itself."""

        def _repr_png_(self) -> bytes:
            into = io.BytesIO()
            self.savefig(into, format="png", dpi=100)
            return into.getvalue()

    return Picture


def figure(stats: Sequence[Dict[str, Any]]) -> Any:
    """Draws the time of each node in its parts, and for each array how many pages each node fetched and how much it
    wrote to others.

    Raises
    ------
    ArgumentError
        Without matplotlib.
    """
    try:
        make = _picture()
    except ImportError as error:
        raise ArgumentError("plot() needs matplotlib; pip install matplotlib, or look at stats()") from error
    arrays = arrays_of(stats)[:ARRAYS_MAX]
    out = make(figsize=(12, 2.4 + 0.35 * max(len(stats), len(arrays))), layout="constrained")
    times, owned, fetched, wrote = out.subplots(1, 4, width_ratios=(2, 1, 1, 1))
    _draw_times(times, stats)
    _draw_table(owned, arrays, [a["pages_owned"] for a in arrays], "pages owned")
    _draw_table(fetched, arrays, [a["pages_fetched"] for a in arrays], "pages fetched")
    _draw_table(wrote, arrays, [[n / 1024 for n in a["diff_bytes"]] for a in arrays], "KiB sent to owners")
    for axes in (fetched, wrote):
        axes.set_yticklabels([])
    if any(a["engine"] == "hardware" for a in arrays):
        out.suptitle(UNOBSERVED, fontsize="small")
    return out


def _draw_times(axes: Any, stats: Sequence[Dict[str, Any]]) -> None:
    nodes = list(range(len(stats)))
    left = [0.0] * len(stats)
    for part, color in zip(PARTS, COLORS):
        seconds = [one.get("time_us", {}).get(part, 0) / 1e6 for one in stats]
        axes.barh(nodes, seconds, left=left, color=color, label=part)
        left = [a + b for a, b in zip(left, seconds)]
    axes.set_yticks(nodes, [f"node {node}" for node in nodes])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title("where the time went")
    axes.legend(
        fontsize="x-small", ncols=6, loc="upper center", bbox_to_anchor=(0.5, -0.25), frameon=False, columnspacing=0.8
    )


def _draw_table(axes: Any, arrays: Sequence[Dict[str, Any]], numbers: Sequence[Sequence[float]], title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("node")
    if not arrays:
        axes.set_yticks([])
        return
    axes.set_xticks(range(len(numbers[0])), [str(node) for node in range(len(numbers[0]))])
    axes.imshow(numbers, aspect="auto", cmap="Blues")
    axes.set_yticks(range(len(arrays)), [a["label"][:24] for a in arrays], fontsize="x-small")
    most = max(max(row) for row in numbers)
    for row, line in enumerate(numbers):
        for node, number in enumerate(line):
            color = "white" if number > most / 2 else "black"
            axes.text(node, row, f"{number:.0f}", ha="center", va="center", fontsize="x-small", color=color)
