"""Definitions of dataflows and catalogues as messages of the protocol."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.json_format import ParseDict

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.model import Dataflow
from goffish.v1 import dataflows_pb2


def dataflow_message(dataflow: Dataflow) -> dataflows_pb2.Dataflow:
    """A dataflow as a message; what is left out has its default."""
    body = dataflow.model_dump(exclude_defaults=True)
    body["edges"] = [{"from": source, "to": target} for source, target in dataflow.edges]
    made = dataflows_pb2.Dataflow()
    ParseDict(body, made)
    return made


def catalogue_message(catalogue: Catalogue) -> dataflows_pb2.Catalogue:
    """A catalogue as a message."""
    body = catalogue.model_dump(exclude_defaults=True, exclude={"classes": {"__all__": {"available"}}})
    for one in body["classes"]:
        if "prices" in one:
            one["prices"] = Path(one["prices"]).name  # where the operator keeps a file is nobody's business
    made = dataflows_pb2.Catalogue()
    ParseDict(body, made)
    return made
