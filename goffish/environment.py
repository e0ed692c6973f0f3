"""The environment of processes that run other people's jobs: what they need by name, never what looks like a secret."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from goffish.errors import InputError

#: Names, and beginnings of names (``*``), of variables that programs need to find files, libraries, and each other.
_NEEDED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR",
    "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_*", "XDG_*", "GOFFISH_DATA",
    "NUMBA_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "JAVA_HOME", "SPARK_*", "PYSPARK_*", "HADOOP_*", "YARN_CONF_DIR",
    "MPICH_*", "MPIR_*", "HYDRA_*", "PMI_*", "PMIX_*", "OMPI_*", "PRTE_*", "I_MPI_*", "FI_*", "UCX_*", "SLURM_*",
    "PBS_*", "LSB_*", "SGE_*",
)  # fmt: skip
_ALLOWED = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in _NEEDED), re.DOTALL)
_SECRET = re.compile("TOKEN|SECRET|PASS|PWD|KEY|CREDENTIAL|AUTH|JWT|COOKIE|_OPTS|_ARGS|SPARK_REMOTE", re.IGNORECASE)


#: PR_SET_PDEATHSIG of Linux.
_DIES_WITH_PARENT = 1
_C = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Let this process be killed when its parent ends for any reason."""
    _C.prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def looks_secret(name: str) -> bool:
    """Return whether the name of a variable suggests that its value is a secret."""
    return _SECRET.search(name) is not None


def check_private(path: Path) -> None:
    """Refuse a file with secrets that other users can read.

    Parameters
    ----------
    path : Path
        A file; one of another user may be readable by a group of this process.

    Raises
    ------
    InputError
    """
    file = path.stat()
    # Secrets of Kubernetes are root's files, which the user of a container reads as a member of the group (fsGroup).
    by_group = file.st_uid != os.geteuid() and file.st_gid in (os.getegid(), *os.getgroups())
    if file.st_mode & (0o037 if by_group else 0o077):
        raise InputError(f"{path}: readable by other users; run chmod 600 {path}")


def child_environment(names: Iterable[str] = ()) -> dict[str, str]:
    """The variables of this process that a child gets: needed ones, and those of `names`.

    Parameters
    ----------
    names : iterable of str
        More variables, whatever they are called; those that are not set are left out.

    Returns
    -------
    dict of str to str
        With ``PYTHONPATH``, so that the child finds the same modules.
    """
    named = set(names)
    found = {
        name: value for name, value in os.environ.items()
        if name in named or (_ALLOWED.fullmatch(name) and not looks_secret(name))
    }  # fmt: skip
    return found | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
