"""Launchers killed at random times: ``python benchmarks/launch_crashes.py [--crashes 100]``.

``goffish launch`` rents machines of moto's server of the AWS API, which also keeps the storage of jobs; machines run
nothing. A launcher gets SIGKILL up to some seconds after it has begun, and the same command takes the job up again;
after every fourth crash the job is cancelled. Counted are machines of a job at a time, and what is left of all jobs.
Needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import _harness
import boto3
import numpy as np
import yaml
from ec2_adoption import serve

_REGION = "us-east-1"
#: Crashes of a job, and the latest time of a crash after the first event of a launcher, in seconds.
_OF_A_JOB, _LATEST_S = 4, 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crashes", type=int, default=100)
    crashes = parser.parse_args().crashes
    print(_harness.machine_line(), flush=True)
    server, address = serve()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": _REGION,
        "AWS_ENDPOINT_URL": address,
    }  # fmt: skip
    try:
        with tempfile.TemporaryDirectory(prefix="launch-crashes-") as folder:
            found, left = crash(Path(folder), crashes)
    finally:
        server.kill()
    rows = [[name, str(count)] for name, count in found.items()]
    _harness.print_table(["what", "number"], [*rows, ["left at the end, by kind", str(dict(left) or "nothing")]])


def crash(place: Path, crashes: int) -> tuple[dict[str, int], Counter[str]]:
    """Kill launchers, and return what happened and what is left."""
    write_inputs(place)
    launch = [
        "launch", "pagerank", "edges.txt", "--provider", "aws", "--provider-options", "aws.yaml", "--cloud", "own.yaml",
        "--jobs", "s3://jobs/all", "--yes",
    ]  # fmt: skip
    rng, most, while_running, adopted, after_cancel = random.Random(1), 0, 0, 0, 0
    for number in range(crashes):
        lines = killed(place, launch, rng.uniform(0.0, _LATEST_S))
        adopted += any("found again" in line for line in lines)
        machines = running()
        most, while_running = max(most, len(machines)), while_running + bool(machines)
        if number % _OF_A_JOB == _OF_A_JOB - 1 or number == crashes - 1:
            ended = command(place, *launch, "--cancel")
            if ended.returncode != 0 and "has no unfinished job" not in ended.stderr:
                raise SystemExit(ended.stderr)
            after_cancel += len(running())
        print(f"{number + 1} of {crashes}", file=sys.stderr, end="\r", flush=True)
    listed = json.loads(command(place, "cloud", "reap", "aws", "--provider-options", "aws.yaml", "--json").stdout)
    left = Counter(one["kind"] for one in listed["found"])
    found = {
        "crashes": crashes, "of them with a machine": while_running, "launchers that found one again": adopted,
        "machines at a time, most": most, "machines left after a cancelled job": after_cancel,
    }  # fmt: skip
    return found, left


def write_inputs(place: Path) -> None:
    boto3.client("s3").create_bucket(Bucket="jobs")
    image = boto3.client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    (place / "aws.yaml").write_text(yaml.safe_dump({"image": image, "region": _REGION, "zones": ["us-east-1a"]}))
    hours = (np.datetime64("2025-01-01T00:00:00") + np.timedelta64(hour, "h") for hour in range(97))
    (place / "own.csv").write_text("timestamp_utc,available\n" + "".join(f"{hour},1\n" for hour in hours))
    one = {"name": "c7i.large", "cores": 2, "price_per_hour": 0.09, "market": "spot", "spot_price_per_hour": 0.03}
    made = {"billing": {"quantum_s": 1}, "machine_types": [one | {"availability": "own.csv"}]}
    (place / "own.yaml").write_text(yaml.safe_dump(made))
    (place / "edges.txt").write_text("".join(f"{at} {at * 7 % 101}\n" for at in range(101)))


def killed(place: Path, launch: list[str], after_s: float) -> list[str]:
    """Start a launcher, kill it some time after its first event, and return what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "goffish", *launch],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines, timer = [], threading.Timer(after_s, process.kill)
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("job ") and timer.ident is None:
                timer.start()
    timer.cancel()
    if process.returncode != -signal.SIGKILL:
        raise SystemExit(f"the launcher ended by itself: {''.join(lines)}")
    return lines


def command(place: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goffish", *args], cwd=place, check=False, capture_output=True, text=True
    )


def running() -> list[dict[str, Any]]:
    """Machines that have not been ended."""
    pages = boto3.client("ec2").get_paginator("describe_instances").paginate()
    every = [one for page in pages for made in page["Reservations"] for one in made["Instances"]]
    return [one for one in every if one["State"]["Name"] in ("pending", "running")]


if __name__ == "__main__":
    main()
