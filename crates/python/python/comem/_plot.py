"""Pictures of what a cluster did: where the time went, and which node fetched what."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ._errors import ArgumentError

#: The parts of the time as `comem report` shows them: the first five are the threads', the sixth the service thread's own.
PARTS = ("compute", "fetch", "lock", "barrier", "protocol", "service")
COLORS = ("#4c9f70", "#d1495b", "#edae49", "#3066be", "#8d6a9f", "#9a9a9a")
#: Most arrays in a picture; those that cost most.
ARRAYS_MAX = 12


def arrays_of(stats: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The shared arrays and what each node fetched and sent of them, the dearest first.

    Parameters
    ----------
    stats : list of dict
        By node, as :meth:`comem.Cluster.stats` gives them.

    Returns
    -------
    list of dict
        ``label``, ``bytes``, and by node ``pages_fetched``, ``diff_bytes`` (of changes sent to pages' homes elsewhere), ``faults``.
    """
    found: Dict[int, Dict[str, Any]] = {}
    for node, one in enumerate(stats):
        for region in one.get("regions", []):
            new = {"label": region.get("label", ""), "bytes": region["bytes"]}
            new.update({count: [0] * len(stats) for count in ("pages_fetched", "diff_bytes", "faults")})
            about = found.setdefault(region["address"], new)
            for count in ("pages_fetched", "diff_bytes", "faults"):
                about[count][node] += region.get(count, 0)
    return sorted(found.values(), key=lambda about: -sum(about["pages_fetched"]) - sum(about["faults"]))


def figure(stats: Sequence[Dict[str, Any]]) -> Any:
    """Draws the time of each node in its parts, and for each array how many pages each node fetched and how much it wrote to others.

    Raises
    ------
    ArgumentError
        Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArgumentError("plot() needs matplotlib; pip install matplotlib, or look at stats()") from error
    arrays = arrays_of(stats)[:ARRAYS_MAX]
    out = Figure(figsize=(11, 2.2 + 0.35 * max(len(stats), len(arrays))), layout="constrained")
    times, fetched, wrote = out.subplots(1, 3)
    _draw_times(times, stats)
    _draw_table(out, fetched, arrays, [a["pages_fetched"] for a in arrays], len(stats), "pages fetched from their owners")
    _draw_table(out, wrote, arrays, [[n / 1024 for n in a["diff_bytes"]] for a in arrays], len(stats), "KiB written to others' pages")
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
    axes.legend(fontsize="x-small", ncols=2)


def _draw_table(out: Any, axes: Any, arrays: Sequence[Dict[str, Any]], numbers: Sequence[Sequence[float]], nodes: int, title: str) -> None:
    axes.set_title(title)
    axes.set_xticks(range(nodes), [str(node) for node in range(nodes)])
    axes.set_xlabel("node")
    if not arrays:
        axes.set_yticks([])
        return
    axes.imshow(numbers, aspect="auto", cmap="Blues")
    axes.set_yticks(range(len(arrays)), [a["label"][:24] for a in arrays], fontsize="x-small")
    most = max(max(row) for row in numbers)
    for row, line in enumerate(numbers):
        for node, number in enumerate(line):
            color = "white" if number > most / 2 else "black"
            axes.text(node, row, f"{number:.0f}", ha="center", va="center", fontsize="x-small", color=color)
