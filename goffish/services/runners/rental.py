"""What a server rents: a provider with its options, and the object storage of the jobs on its machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.providers.ec2 import Ec2Provider
from goffish.cloud.providers.ec2_account import Ec2Options
from goffish.cloud.providers.kubernetes import KubernetesOptions, KubernetesProvider
from goffish.cloud.providers.protocol import Provider
from goffish.definitions import Definition, read_definition
from goffish.gofs.files import open_folder
from goffish.partial import is_uri
from goffish.services.runners.cloud import CloudRunner
from goffish.services.store.spec import DEFAULT_POLICY, SpotPolicy

_ANY = "ec2-2025"


class Rental(Definition):
    """Machines that a server rents for jobs.

    Attributes
    ----------
    jobs : str
        URI of the folders of jobs in object storage, which the machines can read and write.
    ec2 : Ec2Options, optional
    kubernetes : KubernetesOptions, optional
        Of one of them.
    policy : {"rtba", "h1", "h2", "h3", "greedy", "eager", "uniform-progress", "on-demand"}
        Of jobs that name none.
    """

    jobs: str
    ec2: Ec2Options | None = None
    kubernetes: KubernetesOptions | None = None
    policy: SpotPolicy = DEFAULT_POLICY

    @field_validator("jobs")
    @classmethod
    def _is_storage(cls, jobs: str) -> str:
        if not is_uri(jobs) or jobs.startswith("file:"):
            raise ValueError("accepted are URIs of object storage, such as s3://bucket/jobs")
        return jobs

    @model_validator(mode="after")
    def _one_provider(self) -> Rental:
        if (self.ec2 is None) == (self.kubernetes is None):
            raise ValueError("give the options of one provider: ec2 or kubernetes")
        return self

    def applied(self, runner: CloudRunner) -> CloudRunner:
        """Return a runner of jobs on these machines."""
        return replace(
            runner, pace=1.0, rent=lambda renting: self.provider(renting.catalogue), jobs_at=self.jobs,
            policy=self.policy, provider="kubernetes" if self.ec2 is None else "aws",
        )  # fmt: skip

    def check(self) -> None:
        """Check that the provider and the storage can be used from here, as far as their clients say.

        Raises
        ------
        InputError
            A package is missing, or no account, cluster or storage is configured.
        StoreError
            There is no storage of that scheme.
        """
        open_folder(self.jobs)
        self.provider(read_catalogue(_ANY))

    def provider(self, catalogue: Catalogue) -> Provider:
        """Return the provider of the machine types of a catalogue."""
        if self.ec2 is not None:
            return Ec2Provider(catalogue, self.ec2)
        assert self.kubernetes is not None
        return KubernetesProvider(catalogue, self.kubernetes)


def read_rental(given: str | Path | Mapping[str, Any] | Rental) -> Rental:
    """Read a description from a YAML or JSON file, or from a mapping.

    Raises
    ------
    InputError
        The description is invalid; names the file, the field and what is accepted.
    """
    return read_definition(Rental, given, "rental", "jobs")
