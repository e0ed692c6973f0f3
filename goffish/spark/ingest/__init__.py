"""From raw files to a store on Spark: `ingest`, and the YAML file that says what is what, `read_spec`."""

from goffish.spark.ingest.run import IngestReport, ingest
from goffish.spark.ingest.spec import IngestSpec, read_spec

__all__ = ["IngestReport", "IngestSpec", "ingest", "read_spec"]
