"""Logs of a server: lines of JSON on stderr, and who did what in a file of its own."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
import time
from pathlib import Path

_BYTES, _FILES = 10 << 20, 10


def set_up_logs(home: Path) -> None:
    """Write logs to stderr, and the audit log to ``audit.log`` of a folder, which is turned over at 10 MiB."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_Lines())
    ours = logging.getLogger("goffish")
    ours.addHandler(lines)
    ours.setLevel(logging.INFO)
    path = home / "audit.log"
    path.touch(mode=0o600)
    file = logging.handlers.RotatingFileHandler(path, maxBytes=_BYTES, backupCount=_FILES)
    file.setFormatter(_Audit())
    audit = logging.getLogger("goffish.audit")
    audit.addHandler(file)
    audit.propagate = False


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        body = {"time": _moment(record), "level": record.levelname.lower(), "text": record.getMessage()}
        if record.exc_info:
            body["exception"] = self.formatException(record.exc_info)
        return json.dumps(body)


class _Audit(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"time": _moment(record)} | json.loads(record.getMessage()))


def _moment(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
