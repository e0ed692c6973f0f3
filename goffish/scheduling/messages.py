"""Convert definitions of dataflows and catalogues to protocol messages."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.json_format import ParseDict

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.model import Dataflow
from goffish.v1 import dataflows_pb2


def dataflow_message(dataflow: Dataflow) -> dataflows_pb2.Dataflow:
    """Convert a dataflow to a message; fields with default values are left out."""
    body = dataflow.model_dump(exclude_defaults=True)
    body["edges"] = [{"from": source, "to": target} for source, target in dataflow.edges]
    made = dataflows_pb2.Dataflow()
    ParseDict(body, made)
    return made


def catalogue_message(catalogue: Catalogue) -> dataflows_pb2.Catalogue:
    """Convert a catalogue to a message."""
    body = catalogue.model_dump(exclude_defaults=True, exclude={"classes": {"__all__": {"available"}}})
    for one in body["classes"]:
        if "prices" in one:
            one["prices"] = Path(one["prices"]).name  # do not disclose folders of the operator
    made = dataflows_pb2.Catalogue()
    ParseDict(body, made)
    return made
