"""Options of commands that rent machines."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.cloud.providers.ec2_account import Ec2Options
    from goffish.cloud.providers.kubernetes import KubernetesOptions


class ProviderName(StrEnum):
    """Providers of machines."""

    AWS = "aws"
    KUBERNETES = "kubernetes"
    LOCAL = "local"


PROVIDERS = "aws|kubernetes|local"
PROVIDER_HELP = "Provider of machines; local: processes of this machine with the prices of a catalogue."
JOBS_HELP = "Folder of jobs in object storage, which the machines can read and write."
OPTIONS_HELP = "YAML file of provider options."
OPTIONS_DEFAULT = "environment of the provider"


def read_provider_options(provider: ProviderName, options: str | None) -> Ec2Options | KubernetesOptions | None:
    """Return the options of a provider from a file.

    Parameters
    ----------
    provider : ProviderName
    options : str, optional
        Path of the file.

    Raises
    ------
    InputError
        The file is invalid, is required, or does not apply.
    """
    if provider == ProviderName.LOCAL:
        if options is not None:
            raise InputError("--provider-options does not apply to --provider local")
        return None
    if provider == ProviderName.AWS:
        from goffish.cloud.providers.ec2_account import Ec2Options, read_ec2_options

        return Ec2Options() if options is None else read_ec2_options(options)
    if options is None:
        raise InputError("--provider kubernetes: requires --provider-options, a YAML file with the image")
    from goffish.cloud.providers.kubernetes import read_kubernetes_options

    return read_kubernetes_options(options)
