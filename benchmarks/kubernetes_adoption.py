"""Adoption of pods after a crash, against the API server of Kubernetes: ``python benchmarks/kubernetes_adoption.py``.

A new provider lists 1,000 machines by their tags, with the token of the server's service account; the baseline is the
official client, which only reads them in pages of 500. The time of kube-apiserver and etcd is part of both.
KUBEBUILDER_ASSETS names the folder with etcd, kube-apiserver and kubectl. Needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import _harness

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kubernetes import client, config

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import Request
from goffish.cloud.providers.kubernetes import KubernetesOptions, KubernetesProvider
from tests.cloud.kubernetes_cluster import ASSETS, JOBS, Kubernetes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=1000)
    machines = parser.parse_args().machines
    if not os.environ.get(ASSETS):
        raise SystemExit(f"{ASSETS} does not name a folder with etcd, kube-apiserver and kubectl")
    catalogue = read_catalogue("ec2-2025")
    with tempfile.TemporaryDirectory(prefix="kubernetes-adoption-") as folder:
        cluster = Kubernetes(Path(os.environ[ASSETS]), Path(folder))
        try:
            here = cluster.kubeconfig(Path(folder) / "config")
            os.environ["KUBECONFIG"] = str(here)
            options = KubernetesOptions(**cluster.options)

            async def launch() -> None:
                provider = KubernetesProvider(catalogue, options)
                for number in range(machines):
                    await provider.request(Request(
                        machine_type=catalogue.classes[0].name, command=("true",), token=str(number),
                        tags={"job": "benchmark", "number": str(number)},
                    ))  # fmt: skip

            asyncio.run(launch())

            def adopt() -> None:
                provider = KubernetesProvider(catalogue, options)
                assert len(asyncio.run(provider.machines({"job": "benchmark"}))) == machines

            def read() -> None:
                pods = client.CoreV1Api(config.new_client_from_config(str(here)))
                given, found = dict[str, Any](limit=500), 0
                while True:
                    page = pods.list_namespaced_pod(JOBS, **given)
                    found += len(page.items)
                    given["_continue"] = page.metadata._continue
                    if not given["_continue"]:
                        break
                assert found == machines

            found = _harness.measure_together({"GoFFish": adopt, "kubernetes": read}, repeats=5, budget=120.0)
            version = cluster.version
        finally:
            cluster.close()
    print(_harness.machine_line(("kubernetes",)))
    _harness.print_table(
        ["", "seconds: best", "median", "processor"],
        [[name, f"{one.wall:.2f}", f"{one.median:.2f}", f"{one.cpu:.2f}"] for name, one in found.items()],
    )
    ratio = found["GoFFish"].median / found["kubernetes"].median
    print(f"{machines:,} pods on kube-apiserver {version}; ratio of the medians {ratio:.2f}")


if __name__ == "__main__":
    main()
