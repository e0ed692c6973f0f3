"""The Spark engine: the same programs on a Spark cluster, see `run_spark`."""

from goffish.gopher.spark.engine import SparkEngine, run_spark, write_spark
from goffish.gopher.spark.session import session

__all__ = ["SparkEngine", "run_spark", "session", "write_spark"]
