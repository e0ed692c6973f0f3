"""Clients of the scheduling service: submit jobs and request deployments from Python. Needs the extra ``service``.

>>> with Client("127.0.0.1:7077", token=os.environ["GOFFISH_TOKEN"]) as client:  # doctest: +SKIP ...     job =
client.submit_graph("pagerank", "web.store", key="monday") ...     job = client.wait(job.id) ...     table =
client.result(job.id)
"""

from __future__ import annotations

from goffish.client.asynchronous import AsyncClient
from goffish.client.blocking import Client
from goffish.client.channels import ServiceError
from goffish.client.requests import catalogue, dataflow

__all__ = ["AsyncClient", "Client", "ServiceError", "catalogue", "dataflow"]
