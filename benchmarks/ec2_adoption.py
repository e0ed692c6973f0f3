"""Adoption of machines after a crash, against moto's server of the AWS API: ``python benchmarks/ec2_adoption.py``.

A new provider lists 1,000 machines by their tags; the baseline is boto3's paginator, which only reads them. The time of
the server, in a separate process, is part of both. Needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request

import _harness
import boto3

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers.ec2 import Ec2Provider
from goffish.cloud.providers.ec2_account import Ec2Options

_REGION = "us-east-1"


def serve() -> tuple[subprocess.Popen[bytes], str]:
    """Start the server, and wait until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
            return server, address
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not start")


def launch(address: str, machines: int) -> None:
    """Start tagged machines, 50 to a call."""
    ec2 = boto3.client("ec2", region_name=_REGION, endpoint_url=address)
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    tags = [{"Key": "goffish", "Value": "token"}, {"Key": "goffish:job", "Value": "benchmark"}]
    for first in range(0, machines, 50):
        count = min(50, machines - first)
        ec2.run_instances(
            ImageId=image, InstanceType="c7i.large", MinCount=count, MaxCount=count,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=1000)
    machines = parser.parse_args().machines
    os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    catalogue = read_catalogue("ec2-2025")
    server, address = serve()
    try:
        launch(address, machines)

        def adopt() -> None:
            provider = Ec2Provider(catalogue, Ec2Options(region=_REGION, endpoint_url=address))
            assert len(asyncio.run(provider.machines({"job": "benchmark"}))) == machines

        def read() -> None:
            ec2 = boto3.client("ec2", region_name=_REGION, endpoint_url=address)
            filters = [{"Name": "tag:goffish:job", "Values": ["benchmark"]}]
            pages = ec2.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": 1000}
            )
            assert sum(len(one["Instances"]) for page in pages for one in page["Reservations"]) == machines

        found = _harness.measure_together({"GoFFish": adopt, "boto3": read}, repeats=5, budget=60.0)
    finally:
        server.kill()
        server.wait()
    print(_harness.machine_line(("boto3", "moto")))
    _harness.print_table(
        ["", "seconds: best", "median", "processor"],
        [[name, f"{one.wall:.2f}", f"{one.median:.2f}", f"{one.cpu:.2f}"] for name, one in found.items()],
    )
    print(f"{machines:,} machines; ratio of the medians {found['GoFFish'].median / found['boto3'].median:.2f}")


if __name__ == "__main__":
    main()
