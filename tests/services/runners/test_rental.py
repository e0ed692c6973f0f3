"""Descriptions of rented machines, as operators write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers.ec2 import Ec2Provider
from goffish.cloud.providers.kubernetes import KubernetesProvider
from goffish.errors import GoffishError, InputError
from goffish.services.runners.cloud import CloudRunner
from goffish.services.runners.rental import read_rental
from tests.cloud.kubernetes_cluster import StandIn

JOBS, PODS = {"jobs": "memory://jobs"}, {"kubernetes": {"image": "goffish"}}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (PODS, "jobs: is missing"),
        (JOBS, "give the options of one provider: ec2 or kubernetes"),
        (JOBS | PODS | {"ec2": {}}, "give the options of one provider: ec2 or kubernetes"),
        (PODS | {"jobs": "/tmp/jobs"}, "jobs = '/tmp/jobs': accepted are URIs of object storage, such as s3://"),
        (PODS | {"jobs": "file:///tmp/jobs"}, "accepted are URIs of object storage, such as s3://bucket/jobs"),
        (JOBS | {"kubernetes": {"image": "i", "grace": 3}}, "kubernetes.grace"),
        (JOBS | {"ec2": {"image": "mine"}}, "ec2.image"),
        (JOBS | PODS | {"policy": "x"}, "policy"),
    ],
)
def test_mistakes(given: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError) as raised:
        read_rental(given)
    assert error in str(raised.value) and "\n" not in str(raised.value)


def test_the_runner_of_jobs() -> None:
    """Breaks when a job on rented machines has the clock, the storage or the policy of simulated ones."""
    simulated = CloudRunner(str, read_catalogue)
    found = read_rental(JOBS | PODS | {"policy": "greedy"}).applied(simulated)
    assert (found.pace, found.jobs_at, found.policy, found.provider) == (1.0, "memory://jobs", "greedy", "kubernetes")
    assert (simulated.jobs_at, simulated.policy, simulated.provider) == (None, "rtba", "local")


def test_what_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a server starts with a provider or storage that it cannot use."""
    catalogue = read_catalogue("ec2-2025")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match="no cluster is configured"):
        read_rental(JOBS | PODS).check()
    server = StandIn()
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
    read_rental(JOBS | PODS).check()
    server.close()
    assert isinstance(read_rental(JOBS | PODS).provider(catalogue), KubernetesProvider)
    with pytest.raises(GoffishError, match="nosuch"):
        read_rental(PODS | {"jobs": "nosuch://bucket/jobs"}).check()
    rents = read_rental(JOBS | {"ec2": {"region": "us-east-1", "image": "ami-0abcdef1234567890"}})
    assert isinstance(rents.provider(catalogue), Ec2Provider)
