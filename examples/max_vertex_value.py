"""Worked example of the engine: the maximum vertex value, in 4 supersteps instead of 7.

Six vertices on a path, with ids 60 50 40 30 20 10, in two partitions. Prints the value of each subgraph after every
superstep and draws it: ``python examples/max_vertex_value.py docs/pictures/max-vertex-value.png``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import goffish as gf
from goffish.gofs import build_layout

IDS = [60, 50, 40, 30, 20, 10]
COLOURS = ("#0072B2", "#E69F00")


class MaxVertexValue(gf.SubgraphProgram):
    message = {"value": np.int64}
    state = {"value": gf.per_subgraph(np.int64)}

    def init(self, sg: gf.Subgraph) -> None:
        sg["value"] = sg.labels().to_numpy().max()

    def compute(self, sg: gf.Subgraph, step: gf.Superstep) -> None:
        changed = step.number == 1
        if step.messages.size:
            best = step.messages["value"].max()
            if best > sg["value"][0]:
                sg["value"] = best
                changed = True
        if changed:
            step.send_to_neighbors(value=sg["value"][0])
        else:
            step.vote_to_halt()

    def result(self, sg: gf.Subgraph) -> dict[str, Any]:
        return {"value": np.repeat(sg["value"], sg.num_vertices)}


class Watched(MaxVertexValue):
    """The program with a log: (superstep, subgraph, value before, value after, sent, voted)."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, int, int, int, bool, bool]] = []

    def compute(self, sg: gf.Subgraph, step: gf.Superstep) -> None:
        before = int(sg["value"][0])
        super().compute(sg, step)
        self.notes.append((step.number, sg.id, before, int(sg["value"][0]), bool(step.outbox), step.halted))


def main() -> None:
    graph = gf.from_edges(IDS[:-1], IDS[1:])
    owner = np.array([1 if label in (40, 30) else 0 for label in graph.label_column().to_pylist()])
    layout = build_layout(graph, owner, 2)
    program = Watched()
    result = gf.run(program, layout)
    assert result.stats is not None
    for number, subgraph, before, after, sent, voted in sorted(program.notes):
        print(f"superstep {number}: subgraph {subgraph}: {before} -> {after}{', sends' if sent else ''}"
              f"{', votes to halt' if voted else ''}")  # fmt: skip
    print(f"{result.stats.supersteps} supersteps, {result.stats.messages} messages")
    vertex = gf.run("max-value", graph, parts=2, units="vertex")
    assert vertex.stats is not None
    print(f"vertex-centric: {vertex.stats.supersteps} supersteps, {vertex.stats.messages} messages")
    if len(sys.argv) > 1:
        draw(layout, program.notes, sys.argv[1])


def draw(layout: gf.PartitionedGraph, notes: list[tuple[int, int, int, int, bool, bool]], path: str) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    from goffish import plot

    members = {
        part.subgraph_start + s: part.labels()[int(a) : int(b)].to_pylist()
        for part in layout.slices()
        for s, (a, b) in enumerate(zip(part.subgraph_offsets[:-1], part.subgraph_offsets[1:], strict=True))
    }
    partition = {s: part.partition for part in layout.slices() for s in members if s >= part.subgraph_start}
    supersteps = max(number for number, *_ in notes)
    figure = Figure(figsize=(8.5, 1.55 * supersteps), layout="constrained")
    for number, axes in enumerate(figure.subplots(supersteps, 1), start=1):
        done = {note[1]: note for note in notes if note[0] == number}
        for subgraph, labels in members.items():
            where = sorted(IDS.index(label) for label in labels)
            colour = COLOURS[partition[subgraph]]
            latest = max((n for n in notes if n[1] == subgraph and n[0] <= number), key=lambda n: n[0])
            halted = latest[5]
            axes.add_patch(
                FancyBboxPatch(
                    (where[0] - 0.35, -0.45), where[-1] - where[0] + 0.7, 0.9, boxstyle="round,pad=0.05",
                    facecolor=colour, alpha=0.12 if halted else 0.35, edgecolor=colour,
                )
            )  # fmt: skip
            text = f"value {latest[3]}" + (", halted" if halted else "")
            axes.text(np.mean(where), 0.75, text, ha="center", fontsize=9, weight="normal" if halted else "bold")
            if subgraph in done and done[subgraph][4]:
                for end, towards in ((where[0], -1), (where[-1], 1)):
                    if 0 <= end + towards < len(IDS):
                        height = -0.62 if towards > 0 else -0.86
                        axes.annotate(
                            str(latest[3]), (end + towards * 0.95, height), (end - towards * 0.02, height),
                            arrowprops={"arrowstyle": "->"}, ha="center", va="center", fontsize=8,
                        )  # fmt: skip
        axes.plot(range(len(IDS)), [0] * len(IDS), color="grey", zorder=1)
        for at, label in enumerate(IDS):
            axes.text(at, 0, label, ha="center", va="center", fontsize=9, zorder=3,
                      bbox={"boxstyle": "circle,pad=0.3", "facecolor": "white", "edgecolor": "grey"})  # fmt: skip
        axes.set(xlim=(-1.9, 5.6), ylim=(-1.05, 1.1))
        axes.text(-1.85, 0, f"superstep {number}", va="center", weight="bold", fontsize=10)
        axes.axis("off")
    figure.suptitle("Largest vertex value: partition 0 blue, partition 1 orange; arrows are messages", fontsize=10)
    plot.save(figure, path)


if __name__ == "__main__":
    main()
