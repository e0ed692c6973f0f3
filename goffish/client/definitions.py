"""Definitions in files, as messages."""

from __future__ import annotations

from pathlib import Path

from goffish.v1 import dataflows_pb2


def dataflow(path: str | Path) -> dataflows_pb2.Dataflow:
    """A dataflow from a YAML or JSON file, for plans and jobs.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    from goffish.scheduling.dataflow.model import read_dataflow
    from goffish.scheduling.messages import dataflow_message

    return dataflow_message(read_dataflow(Path(path)))


def catalogue(path: str | Path) -> dataflows_pb2.Catalogue:
    """A catalogue of machine classes from a YAML or JSON file, for plans.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    from goffish.cloud.catalogue import read_catalogue
    from goffish.scheduling.messages import catalogue_message

    return catalogue_message(read_catalogue(Path(path)))
