"""MkDocs hook: pages made from the code, and links from pages to files outside the documentation."""

from __future__ import annotations

import importlib
import inspect
import json
import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/goffish/goffish/blob/main/"
#: Files of the repository that are pages of the site, by their address there.
COPIED = {f"benchmarks/{path.name}": path for path in sorted((ROOT / "benchmarks" / "results").glob("*.md"))} | {
    "index.md": ROOT / "README.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "benchmarks/experiments.md": ROOT / "experiments" / "results.md",
}
#: Title, introduction and names of each page of the API.
API = {
    "graphs": (
        "Graphs and files", "Read, write and convert graphs.",
        ["read", "write", "Graph", "from_edges", "from_arrow", "from_igraph", "from_networkx", "from_pandas",
         "from_polars", "from_dataframe", "from_scipy", "to_arrow", "to_igraph", "to_networkx", "to_pandas",
         "to_polars", "to_scipy", "vertices_to_arrow", "union", "intersection", "difference", "contract", "relabel",
         "sample", "join_vertices", "join_edges"],
    ),
    "algorithms": (
        "Algorithms", "Each takes a `Graph` and returns a `Result`.",
        ["connected_components", "strongly_connected_components", "condensation", "biconnected_components",
         "articulation_points", "bridges", "bipartition", "bipartite_projection", "bipartite_cores",
         "minimum_spanning_forest", "bfs", "sssp", "shortest_path", "coordinate_bounds", "distances", "eccentricity",
         "diameter", "neighborhood_function", "topological_order", "longest_path", "maximum_flow", "MaximumFlow",
         "pagerank", "blockrank", "eigenvector", "katz", "hits", "closeness", "harmonic", "betweenness",
         "edge_betweenness", "triangles", "clustering", "core_numbers", "truss_numbers", "motif_counts",
         "graphlet_degrees", "similarity", "random_walks", "fastrp", "hashgnn", "spectral_embedding",
         "maximal_independent_set", "maximal_matching", "greedy_coloring", "aggregate_messages", "run", "Result",
         "RunStats"],
    ),
    "communities": (
        "Communities", "Louvain, Leiden, Infomap, their quality, and the landscape of communities.",
        ["louvain", "infomap", "label_propagation", "modularity", "codelength", "conductance", "agreement", "landscape",
         "Communities", "CommunityLandscape"],
    ),
    "partitions": (
        "Partitions and stores", "Partition a graph, store it, and run algorithms partition by partition.",
        ["partition", "quality", "PartitionedGraph", "open", "verify"],
    ),
    "events": (
        "Event reservoir", "Keep events in a durable store, and query them by time, value and relation.",
        ["Reservoir", "gofs.reservoir.Pool", "gofs.reservoir.Relation"],
    ),
    "programs": (
        "Programs", "Write your own subgraph-centric program.",
        ["SubgraphProgram", "Superstep", "BatchStep", "Subgraph", "SubgraphBatch", "per_neighbor", "per_remote",
         "per_subgraph", "per_vertex"],
    ),
    "time-series": (
        "Temporal graphs", "Graphs whose values or edges change with time.",
        ["open_series", "run_series", "TimeSeriesProgram", "temporal_paths", "temporal_triangles"],
    ),
    "errors": (
        "Errors", "All errors that GoFFish raises on purpose.",
        ["GoffishError", "InputError", "FormatError", "DataError", "StoreError", "JobError"],
    ),
}  # fmt: skip
#: Other public modules, whose names are those of ``__all__``.
MODULES = {
    "generators": ("Generators", "goffish.graph.generators"),
    "streams": ("Streams", "goffish.streaming"),
    "spark": ("Spark", "goffish.spark"),
    "client": ("Client of the scheduling service", "goffish.client"),
    "plot": ("Plots", "goffish.plot"),
}
#: Files that users write, and what the service accepts: model, and what the section says first.
MODELS = {
    "Dataflow (YAML)": ("goffish.scheduling.dataflow.model", "Dataflow", "`goffish plan` and `goffish simulate`."),
    "Catalogue of machine types (YAML)": ("goffish.cloud.catalogue", "Catalogue", "`--cloud` of many commands."),
    "EC2 options (YAML)": ("goffish.cloud.providers.ec2_account", "Ec2Options", "`--options` of `goffish cloud`."),
    "Rented machines (YAML)": ("goffish.services.runners.rental", "Rental", "`--rent` of `goffish serve`."),
    "Kubernetes options (YAML)": (
        "goffish.cloud.providers.kubernetes",
        "KubernetesOptions",
        "`kubernetes` of rented machines.",
    ),
    "Ingest (YAML)": ("goffish.spark.ingest.spec", "IngestSpec", "`goffish ingest`."),
    "Job": ("goffish.services.store.spec", "JobSpec", "What a client submits, as the service stores it."),
}
#: Names of fields in files, and in Python.
ALIASES = {"processing_elements": "elements", "machine_types": "classes"}
VARIABLES = {
    "GOFFISH_SERVER": "Address of the scheduling service, default of `--server`.",
    "GOFFISH_TOKEN": "Token of the client, default of `--token`; `@FILE` reads it from a file.",
    "GOFFISH_AUTHORITY": "Certificate authority of the server, default of `--authority`.",
    "GOFFISH_CERTIFICATE": "Certificate file of the client, for mutual TLS.",
    "GOFFISH_KEY": "Key file of the client, for mutual TLS.",
    "GOFFISH_DATA": "Folder of more price traces, availability traces and request rates than the bundled ones.",
    "GOFFISH_GRAPHFRAMES_JARS": "The two jars of GraphFrames, separated by a comma; default: from Maven.",
    "KUBEBUILDER_ASSETS": "Folder of `etcd`, `kube-apiserver` and `kubectl`, for the tests of machines of Kubernetes.",
    "GOFFISH_WEBHOOK_SECRET": "Secret that signs what `goffish stream run|serve --deliver` sends to webhooks.",
    "GOFFISH_SHARED": "Folder or URI for temporary stores of MPI ranks or Spark executors; default: a local folder.",
    "GOFFISH_JOB_FOLDER": "Folder of the files of an MPI rank on a rented machine; set by GoFFish.",
    "GOFFISH_NOTICE": "File that announces an interruption, set on rented machines; agents of flows leave upon it.",
    "GOFFISH_TRACEBACK": "Set to 1 to print the traceback of an internal error.",
    "NUMBA_CACHE_DIR": "Folder of compiled kernels; default: in the package, or `~/.cache/numba` if that is read-only.",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of commands and of benchmark results in the navigation."""
    addresses = [address for address, _ in command_pages()]
    results = [
        address for address in COPIED if address.startswith("benchmarks/") and COPIED[address].parent.name == "results"
    ]

    def expand(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: addresses if value == "reference/cli" else expand(value) for title, value in entry.items()}
        if isinstance(entry, list):
            return [new for one in entry for new in (results if one == "benchmarks/results" else [expand(one)])]
        return entry

    config.nav = expand(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and those of the repository."""
    for address, text in pages():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point relative links at the site, or at the repository where the site has no such page."""
    address = page.file.src_uri
    source = COPIED.get(address, ROOT / "docs" / address)
    folder = source.parent
    at = {path.resolve(): name for name, path in COPIED.items()}

    def target(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:|/", path) or not path:
            return match[0]
        found = (folder / path).resolve()
        if not found.is_relative_to(ROOT) or not found.exists():
            return match[0]
        if found in at:
            new = at[found]
        elif found.is_relative_to(ROOT / "docs"):
            new = found.relative_to(ROOT / "docs").as_posix()
        else:
            return f"]({REPOSITORY}{found.relative_to(ROOT).as_posix()}{anchor})"
        return f"]({posixpath.relpath(new, posixpath.dirname(address) or '.')}{anchor})"

    return re.sub(r"\]\(([^)#\s]+)(#[^)\s]*)?\)", target, markdown)


def pages() -> Iterator[tuple[str, str]]:
    """Address and Markdown of every page that is not in ``docs``."""
    for address, path in COPIED.items():
        yield address, path.read_text(encoding="utf-8")
    for name, (title, introduction, names) in API.items():
        body = "".join(f"\n::: goffish.{one}\n" for one in names)
        yield f"reference/api/{name}.md", f"# {title}\n\n{introduction}\n{body}"
    for name, (title, module) in MODULES.items():
        found = importlib.import_module(module)
        first = inspect.getdoc(found) or ""
        body = "".join(f"\n::: {module}.{one}\n" for one in found.__all__ if callable(getattr(found, one)))
        yield f"reference/api/{name}.md", f"# {title}\n\n{first}\n{body}"
    yield from command_pages()
    yield "reference/configuration.md", configuration_page()
    yield "reference/protobuf.md", protobuf_page()
    yield "reference/metrics.md", metrics_page()


def command_pages() -> Iterator[tuple[str, str]]:
    """One page for each command, from the parser."""
    command = [sys.executable, "-m", "typer", "goffish.cli.app", "utils", "docs", "--name", "goffish"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    whole = dict(re.findall(r"(?m)^#+ `(goffish [\w -]+)`\n\n(.+)$", text))
    text = _with_summaries(text, whole)
    first, *rest = re.split(r"(?m)^## `goffish ", text)
    first = re.sub(r"(?m)^\* `([a-z][a-z-]*)`: ", r"* [`\1`](\1.md): ", first)
    yield "reference/cli/index.md", first.replace("# `goffish`", "# Command line", 1)
    for one in rest:
        name, body = one.split("`", 1)
        body = re.sub(r"(?m)^###", "##", body)
        yield f"reference/cli/{name}.md", f"# goffish {name}{body}"


def _with_summaries(text: str, whole: dict[str, str]) -> str:
    """Lists of commands with the first line of their help, which the generator cuts at 45 characters."""
    group, lines = "", []
    for line in text.splitlines():
        if heading := re.match(r"#+ `(goffish[\w -]*)`$", line):
            group = heading[1]
        elif item := re.match(r"\* `([a-z][a-z-]*)`: ", line):
            lines.append(item[0] + whole.get(f"{group} {item[1]}", line[item.end() :]))
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """Fields of the files that users write and of jobs, from their models, and environment variables."""
    parts = ["# Configuration\n\nFiles, jobs and environment variables. Unknown fields are errors.\n"]
    written: set[str] = set()
    for title, (module, name, introduction) in MODELS.items():
        parts.append(f"\n## {title}\n\n{introduction}\n")
        schema = getattr(importlib.import_module(module), name).model_json_schema()
        models = {name: schema} | schema.get("$defs", {})
        for one, model in models.items():
            if one not in written and "properties" in model:
                parts.append(f"\n### {one}\n\n{_fields(model)}")
                written.add(one)
    parts.append("\n## Environment variables\n\n| variable | meaning |\n|---|---|\n")
    parts += [f"| `{name}` | {meaning} |\n" for name, meaning in VARIABLES.items()]
    return "".join(parts)


def _fields(model: dict[str, Any]) -> str:
    """Summary of a model, and a table of its fields."""
    sections = griffe.Docstring(model.get("description", "")).parse("numpy", warnings=False)
    summary = "\n\n".join(part.value for part in sections if part.kind is griffe.DocstringSectionKind.text)
    described = {
        name.strip(): " ".join(one.description.split())
        for part in sections
        if part.kind is griffe.DocstringSectionKind.attributes
        for one in part.value
        for name in one.name.split(",")
    }
    described |= {new: described[old] for new, old in ALIASES.items() if old in described}
    rows = ""
    for name, field in model["properties"].items():
        default = "required" if name in model.get("required", ()) else ""
        if field.get("default") not in (None, "", [], {}) and not isinstance(field["default"], dict):
            default = f"`{json.dumps(field['default']).removesuffix('.0')}`"
        rows += f"| `{name}` | {_type(field)} | {default} | {described.get(name, '')} |\n"
    return f"{summary}\n\n| field | type | default | meaning |\n|---|---|---|---|\n{rows}"


def _type(schema: dict[str, Any]) -> str:
    """Type of a field with its bounds, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several] if one.get("type") != "null")
    kind = schema.get("type", "any value")
    if kind == "array" and "prefixItems" in schema:
        return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"mapping of {_type(inner)}" if isinstance(inner, dict) else "mapping"
    kind = {"string": "text", "boolean": "`true` or `false`"}.get(kind, kind)
    bounds = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    return kind + ",".join(
        f" {sign} {schema[key]:,}".removesuffix(".0") for key, sign in bounds.items() if key in schema
    )


def protobuf_page() -> str:
    """Services and messages, with the comments of the ``.proto`` files."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    proto, bundled = ROOT / "proto", Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        sources = sorted(str(path) for path in proto.rglob("*.proto"))
        options = [f"-I{proto}", f"-I{bundled}", f"--descriptor_set_out={out}", "--include_source_info"]
        if protoc.main(["protoc", *options, *sources]):
            raise RuntimeError("protoc failed")
        described = FileDescriptorSet.FromString(out.read_bytes())
    parts = ["# gRPC protocol\n\nPackage `goffish.v1`. Server reflection is available.\n"]
    for file in described.file:
        comments = {
            tuple(one.path): one.leading_comments.strip().replace("\n", " ") for one in file.source_code_info.location
        }
        parts.append(f"\n## {Path(file.name).name}\n")
        for at, service in enumerate(file.service):
            parts.append(
                f"\n### {service.name}\n\n{comments.get((6, at), '')}\n\n"
                "| method | request | response | |\n|---|---|---|---|\n"
            )
            for number, method in enumerate(service.method):
                stream = ["stream " if yes else "" for yes in (method.client_streaming, method.server_streaming)]
                kinds = [
                    kind + "`" + name.rsplit(".", 1)[-1] + "`"
                    for kind, name in zip(stream, (method.input_type, method.output_type), strict=True)
                ]
                parts.append(
                    f"| `{method.name}` | {kinds[0]} | {kinds[1]} | {comments.get((6, at, 2, number), '')} |\n"
                )
        for at, message in enumerate(file.message_type):
            parts.append(f"\n### {message.name}\n\n{comments.get((4, at), '')}\n")
            if message.field:
                parts.append("\n| field | number | type | |\n|---|---|---|---|\n")
            for number, field in enumerate(message.field):
                kind = field.type_name.rsplit(".", 1)[-1] or field.Type.Name(field.type)[5:].lower()
                kind = ("repeated " if field.label == field.LABEL_REPEATED else "") + kind
                parts.append(f"| `{field.name}` | {field.number} | {kind} | {comments.get((4, at, 2, number), '')} |\n")
        for at, enum in enumerate(file.enum_type):
            parts.append(f"\n### {enum.name}\n\n{comments.get((5, at), '')}\n\n| value | number | |\n|---|---|---|\n")
            for number, value in enumerate(enum.value):
                parts.append(f"| `{value.name}` | {value.number} | {comments.get((5, at, 2, number), '')} |\n")
    return "".join(parts)


def metrics_page() -> str:
    """Metrics of the service, from a registry with one call in it."""
    from goffish.services.api.telemetry import Metrics

    metrics = Metrics()
    metrics.called("/goffish.v1.JobService/Get", "OK", 0.001)
    metrics.watch(lambda: {"queued": 0})
    rows = ""
    for family in metrics.registry.collect():
        labels = ", ".join(sorted({f"`{label}`" for sample in family.samples for label in sample.labels}))
        rows += f"| `{family.name}` | {family.type} | {labels} | {family.documentation} |\n"
    return (
        "# Metrics\n\n`goffish serve --web` serves these at `/metrics` in the Prometheus format. Counters end in "
        "`_total`, histograms have `_bucket`, `_sum` and `_count`.\n\n| metric | type | labels | |\n"
        "|---|---|---|---|\n" + rows
    )
