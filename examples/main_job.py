"""The main job: partition a real graph from an edge list, save it as a store, and run algorithms on it.

Run it with ``make run``, or ``python examples/main_job.py [GRAPH] [FOLDER] [PICTURE.svg]``; the last argument is a
picture of the output.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import goffish as gf
from goffish import plot

ROOT = Path(__file__).resolve().parent.parent
PARTS = 4


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data" / "email-enron.txt.gz"
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("out")
    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, record=True, width=100)
    table = Table(title=f"GoFFish on {source.name}", title_justify="left", title_style="bold")
    for name in ("step", "seconds", "result"):
        table.add_column(name, justify="right" if name == "seconds" else "left")
    clock = time.perf_counter()

    def done(step: str, text: str) -> None:
        nonlocal clock
        table.add_row(step, f"{time.perf_counter() - clock:.2f}", text)
        clock = time.perf_counter()

    graph = gf.read(source)
    done("read", f"{graph.num_vertices:,} vertices, {graph.num_edges:,} edges")
    store = gf.partition(graph, PARTS, method="metis").save(out / "store")
    cut = store.info.partitioner["edge_cut_share"]
    done("partition, save", f"{PARTS} partitions, {store.num_subgraphs:,} subgraphs, {cut:.1%} of the edges cut")

    components = store.run("components")
    components.write(out / "components.parquet")
    summary = components.summary
    done(
        "components",
        f"{summary['components']:,}, the largest of {summary['largest']:,}; {summary['supersteps']} supersteps",
    )

    ranks = store.run("pagerank")
    ranks.write(out / "pagerank.parquet")
    top = ranks.table.sort_by([("rank", "descending")])
    first = top["vertex"][0].as_py()
    highest = f"highest: vertex {first} with {top['rank'][0].as_py():.5f}"
    done("pagerank", f"{highest}; {ranks.summary['supersteps']} supersteps")

    paths = store.run("sssp", source=first)
    paths.write(out / "distances.csv")
    summary = paths.summary
    reached = f"from {first}: {summary['reached']:,} reached, at most {summary['farthest']:g} away"
    done("sssp", f"{reached}; {summary['supersteps']} supersteps")

    assert components.stats is not None
    plot.save(plot.quotient_graph(store), out / "quotient.png")
    plot.save(plot.gantt(components.stats), out / "components-gantt.png")
    done("pictures", "quotient graph, time per partition")

    console.print(table)
    console.print(f"Results are in {out}/: store/, components.parquet, pagerank.parquet, distances.csv, *.png")
    command = Path(sys.executable).with_name("goffish")
    goffish = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else Path("goffish")
    console.print(f"Next:  {goffish} info {out}/store")
    console.print(f"       {goffish} run cores {out}/store --stats")
    console.print(f"       {goffish} run sssp {out}/store --source {first} -o {out}/paths.parquet")
    if len(sys.argv) > 3:
        # Remove rich's font declarations, which refer to an external server.
        picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make run"), flags=re.DOTALL)
        Path(sys.argv[3]).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
