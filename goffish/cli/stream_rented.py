"""Options of flows on machines of a provider."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.providers import (
    JOBS_HELP,
    OPTIONS_DEFAULT,
    OPTIONS_HELP,
    PROVIDER_HELP,
    PROVIDERS,
    ProviderName,
    read_provider_options,
)
from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.partial import is_uri

if TYPE_CHECKING:
    from goffish.cloud.catalogue import Catalogue
    from goffish.cloud.providers.protocol import Provider
    from goffish.streaming.rented.machines import RentedMachines, Renting
    from goffish.streaming.topology import Topology

#: Heading of the options.
RENTED = "Rented machines"
_FEATURE = "stream --provider"
_LISTEN_HERE = "127.0.0.1:0"
#: Interval of looks at machines; providers limit calls of their API.
_LOOK_S, _LOCAL_LOOK_S = 2.0, 0.2
_MOST_MACHINES = 10
_RELEASES_S = 10.0
#: Time from the notice to a spot machine of this computer until it is taken back, as on EC2.
_NOTICE_S = 120.0


class MarketName(StrEnum):
    """Markets of machines."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


ProviderOption = Annotated[
    ProviderName | None,
    typer.Option(metavar=PROVIDERS, help=PROVIDER_HELP, show_default="none", rich_help_panel=RENTED),
]
ProviderOptionsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=OPTIONS_HELP, show_default=OPTIONS_DEFAULT, rich_help_panel=RENTED),
]
JobsOption = Annotated[
    str | None,
    typer.Option(metavar="URI", help=JOBS_HELP, show_default="required but for local", rich_help_panel=RENTED),
]
MachineTypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE,…", help="Machine types of the catalogue, the preferred one first; one worker for each core.",
        show_default="by price per core", rich_help_panel=RENTED,
    ),
]  # fmt: skip
MarketOption = Annotated[
    MarketName | None,
    typer.Option(
        metavar="on-demand|spot", help="Market of the machines; spot: on demand where there is no spot capacity.",
        show_default="on-demand", rich_help_panel=RENTED,
    ),
]  # fmt: skip
MaxMachinesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        help="Maximum number of concurrent machines.",
        show_default=f"{_MOST_MACHINES}",
        rich_help_panel=RENTED,
    ),
]
HourlyBudgetOption = Annotated[
    float | None,
    typer.Option(
        min=0, help="Most that all machines may cost per hour, in the currency of the catalogue.",
        show_default="unlimited", rich_help_panel=RENTED,
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RentalOptions:
    """The options of rented machines, as they were given.

    Attributes
    ----------
    provider : ProviderName, optional
    options, jobs, machine_type, listen, cloud : str, optional
    market : MarketName, optional
    max_machines : int, optional
    hourly_budget : float, optional
    """

    provider: ProviderName | None
    options: str | None
    jobs: str | None
    machine_type: str | None
    market: MarketName | None
    max_machines: int | None
    hourly_budget: float | None
    listen: str | None
    cloud: str | None

    @property
    def cleanup_s(self) -> float:
        """Time that an interrupted command has to release machines of others."""
        return 0.0 if self.provider in (None, ProviderName.LOCAL) else _RELEASES_S

    def check(self, access: dict[str, Any]) -> None:
        """Raise an error if options are given that need others, or contradict them."""
        if self.jobs is not None and (not is_uri(self.jobs) or self.jobs.startswith("file:")):
            raise InputError(f"--jobs {self.jobs}: must be a URI of object storage, such as s3://bucket/jobs")
        if self.provider is None:
            names = ("options", "jobs", "machine_type", "market", "max_machines", "hourly_budget")
            for name in names:
                if (value := getattr(self, name)) is not None:
                    flag = "provider-options" if name == "options" else name.replace("_", "-")
                    raise InputError(f"--{flag} {value}: requires --provider")
            return
        for name, value in access.items():
            if value is not None:
                raise InputError(f"--{name}: not with --provider; each run makes a token and certificates")
        if self.provider == ProviderName.LOCAL:
            return
        for name, value in (("cloud", self.cloud), ("jobs", self.jobs), ("listen", self.listen)):
            if value is None:
                raise InputError(f"--provider {self.provider}: requires --{name}")

    def machines(
        self, topology: Topology, flow: str, replication: int, here: int, lease: float | None,
        checkpoint: str | None, *, planned: bool,
    ) -> RentedMachines | None:  # fmt: skip
        """Return the machines of a flow, none of which is requested yet; None without ``--provider``.

        With `planned`, a policy chooses them.

        Raises
        ------
        InputError
            An option is not accepted, or an extra is missing.
        """
        if self.provider is None:
            return None
        renting = self._renting()
        from goffish.streaming.hosts.machines import LEASE_S
        from goffish.streaming.rented.machines import RentedMachines
        from goffish.streaming.rented.planned import PlannedMachines

        return (PlannedMachines if planned else RentedMachines)(
            topology, flow, renting, replication=replication, here=here, lease_s=LEASE_S if lease is None else lease,
            checkpoint=checkpoint, report=lambda text: sys.stderr.write(f"{text}\n"),
        )  # fmt: skip

    def _renting(self) -> Renting:
        with needed_for(_FEATURE):
            from goffish.cloud.catalogue import read_catalogue
            from goffish.streaming.rented.fleet import RentalLimits
            from goffish.streaming.rented.machines import Renting
            from goffish.streaming.scaling import this_computer

        most = self.max_machines or _MOST_MACHINES
        catalogue = this_computer(most) if self.cloud is None else read_catalogue(self.cloud)
        limits = RentalLimits(
            machine_types=_types(self.machine_type, catalogue), max_machines=most, hourly_budget=self.hourly_budget,
            market="spot" if self.market == MarketName.SPOT else "on-demand",
        )  # fmt: skip
        look_s = _LOCAL_LOOK_S if self.provider == ProviderName.LOCAL else _LOOK_S
        return Renting(
            provider=self._provider(catalogue), limits=limits, listen=self.listen or _LISTEN_HERE, jobs=self.jobs,
            look_s=look_s,
        )  # fmt: skip

    def _provider(self, catalogue: Catalogue) -> Provider:
        assert self.provider is not None
        options: Any = read_provider_options(self.provider, self.options)
        if self.provider == ProviderName.AWS:
            from goffish.cloud.providers.ec2 import Ec2Provider

            if not options.security_groups:
                raise InputError(
                    "--provider aws: the machines of a flow connect to each other; give security_groups in "
                    "--provider-options that let them"
                )
            return Ec2Provider(catalogue, options)
        if self.provider == ProviderName.KUBERNETES:
            from goffish.cloud.providers.kubernetes import KubernetesProvider

            return KubernetesProvider(catalogue, options)
        from goffish.cloud.providers.local import LocalProvider

        return LocalProvider(catalogue, environment=dict(os.environ), notice_s=_NOTICE_S)


def _types(given: str | None, catalogue: Catalogue) -> list[str]:
    """Return the machine types to request, the preferred one first."""
    known = {one.name: one for one in catalogue.classes}
    if given is None:
        return sorted(known, key=lambda name: (known[name].price_per_hour / known[name].cores, known[name].cores))
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InputError(f"--machine-type {name}: unknown; the catalogue has {', '.join(known)}")
    if not names:
        raise InputError("--machine-type: is empty; give names of the catalogue")
    return names


def print_bill(bill: dict[str, Any]) -> None:
    """Print what machines have cost.

    Parameters
    ----------
    bill : dict
        As `Fleet.summary` returns it.
    """
    from goffish.cli.output import print_table

    rows = [
        [one["machine"], one["machine_type"], one["market"], one["zone"], one["state"], one["reason"],
         float(f"{one['hours']:.3g}"), float(f"{one['cost']:.3g}")]
        for one in bill["rented"]
    ]  # fmt: skip
    header = ["machine", "type", "market", "zone", "state", "reason", "hours", bill["currency"]]
    print_table("machines", header, rows)
