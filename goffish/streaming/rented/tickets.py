"""What a rented machine needs to join a flow: the flow's files, an address, a certificate and the token.

Secrets never are in the command, the environment or the tags of a machine, which providers show. A machine finds its
ticket in the folder of the run in storage, which only the machines and this process can read, and deletes it.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

from goffish.errors import JobError, StoreError
from goffish.extras import needed_for
from goffish.gofs.files import Folder, NoSuchFileError
from goffish.streaming.hosts.access import Access

#: Name in the certificates of all machines of a flow, whose addresses are not known when they are requested.
NAME = "machine.flow.goffish"
_TICKETS, _FLOW, _FAILURES = "tickets", "flow", "failures"
_BEFORE, _VALID = timedelta(hours=1), timedelta(days=400)
_MOST_BYTES, _MOST_FILE_BYTES = 1 << 20, 64 << 20
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Ticket:
    """What a machine needs to join a flow.

    Attributes
    ----------
    join : str
        ``HOST:PORT`` of the controller.
    slots : int
        Workers that the machine takes.
    flow : str
        File of the flow in the folder, with ``:NAME`` if it has several.
    folder : str
        Current folder of the controller, to which paths of the flow are relative.
    rejoin_s : float
        Time that the machine waits for another ticket after it has lost the controller.
    token, certificate, key, authority : str
        As of `Access`; the certificate is that of the machine.
    """

    join: str
    slots: int
    flow: str
    folder: str
    rejoin_s: float
    token: str = field(repr=False)
    certificate: str = field(repr=False)
    key: str = field(repr=False)
    authority: str = field(repr=False)

    def access(self, listen: str, folder: Path) -> Access:
        """Return how a machine reaches the others.

        Parameters
        ----------
        listen : str
            ``HOST:PORT`` at which others reach this machine.
        folder : Path
            For certificate and key; other users must not be able to read it.
        """
        return access_of(listen, self.token, (self.certificate, self.key), self.authority, folder)


def access_of(listen: str, token: str, pair: tuple[str, str], authority: str, folder: Path) -> Access:
    """Return how a machine reaches the others, with the certificates as files of a folder.

    Parameters
    ----------
    listen, token : str
    pair : tuple of str
        Certificate and key of this machine.
    authority : str
    folder : Path
        Other users must not be able to read it.

    Returns
    -------
    Access
    """
    files = [folder / name for name in ("certificate.pem", "key.pem", "authority.pem")]
    for path, text in zip(files, (*pair, authority), strict=True):
        path.touch(0o600)
        path.write_text(text)
    return Access(listen, token, files[0], files[1], files[2], NAME)


class Authority:
    """The certificate authority and the token of one run; the key never leaves this process.

    Raises
    ------
    InputError
        A package is missing.
    """

    def __init__(self) -> None:
        with needed_for("machines of a provider"):
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "goffish flow")])
        self.certificate = self._signed(self._name, self._key.public_key(), authority=True)

    def pair(self) -> tuple[str, str]:
        """Return a certificate for a machine, and its key, as PEM text."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._signed(subject, key.public_key(), authority=False), text.decode()

    def _signed(self, subject: object, key: object, *, authority: bool) -> str:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)  # type: ignore[arg-type]
            .issuer_name(self._name)
            .public_key(key)  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _VALID)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


class RunFolder:
    """The folder of a run in storage, as the controller and the machines see it.

    Parameters
    ----------
    store : Folder
    """

    def __init__(self, store: Folder) -> None:
        self._store = store

    # The controller.

    def put_flow(self, flow: str) -> str:
        """Write the file of a flow, with the modules beside it that it has imported.

        Parameters
        ----------
        flow : str
            Path of the file, with ``:NAME`` if it has several flows.

        Returns
        -------
        str
            The same, as in `Ticket`.
        """
        path, _, name = flow.rpartition(":") if ".py:" in flow else (flow, "", "")
        file = Path(path).absolute()
        for one in {file, *_modules(file.parent)}:
            self._store.write(f"{_FLOW}/{one.relative_to(file.parent).as_posix()}", one.read_bytes())
        return f"{file.name}:{name}" if name else file.name

    def put_ticket(self, machine: str, ticket: Ticket) -> None:
        """Write the ticket of a machine."""
        self._store.write(f"{_TICKETS}/{machine}.json", json.dumps(asdict(ticket)).encode())

    def drop_ticket(self, machine: str) -> None:
        """Delete the ticket of a machine that will not use it."""
        with suppress(NoSuchFileError):
            self._store.delete(f"{_TICKETS}/{machine}.json")

    def failure(self, machine: str) -> str:
        """Return why a machine could not join, or an empty text."""
        try:
            found = json.loads(self._store.read(f"{_FAILURES}/{machine}.json", _MOST_BYTES).to_pybytes())
        except (StoreError, ValueError, RecursionError):
            return ""
        text = found.get("error", "") if isinstance(found, dict) else ""
        return " ".join(str(text).split())[:500]

    def clear(self) -> None:
        """Delete all files of the run."""
        self._store.delete_all(self._store.list())

    # A machine.

    def take_ticket(self, machine: str) -> Ticket | None:
        """Return the ticket of this machine, and delete it; None if there is none."""
        name = f"{_TICKETS}/{machine}.json"
        try:
            data = self._store.read(name, _MOST_BYTES).to_pybytes()
        except NoSuchFileError:
            return None
        self._store.delete(name)
        return Ticket(**json.loads(data))

    def take_flow(self, target: Path) -> None:
        """Read the files of the flow into a folder."""
        for name in self._store.list():
            if name.startswith(f"{_FLOW}/"):
                self._take(PurePosixPath(name).relative_to(_FLOW).as_posix(), target)

    def take_file(self, name: str, target: Path) -> None:
        """Read a file of a new version of the flow into a folder, if it is there."""
        if Path(name).name == name and self._store.size(f"{_FLOW}/{name}") is not None:
            self._take(name, target)

    def _take(self, name: str, target: Path) -> None:
        if ".." in name.split("/"):  # object storage accepts any name
            raise JobError(f"{_FLOW}/{name}: leaves the folder of the run")
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._store.read(f"{_FLOW}/{name}", _MOST_FILE_BYTES).to_pybytes())

    def put_failure(self, machine: str, text: str) -> None:
        """Write why this machine cannot join."""
        self._store.write(f"{_FAILURES}/{machine}.json", json.dumps({"error": text}).encode())


def _modules(folder: Path) -> Iterator[Path]:
    """Yield the files of imported modules in a folder."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(folder) and Path(file).suffix == ".py":
            inside = Path(file).relative_to(folder).parts
            if "site-packages" not in inside and Path(file).is_file():
                yield Path(file)
