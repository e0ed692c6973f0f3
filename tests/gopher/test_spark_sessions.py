"""What is said of Spark's errors."""

from __future__ import annotations

import pytest

from goffish.gopher.spark.session import first_line

WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
{}Traceback (most recent call last):
  File "goffish/spark/ingest/blocks.py", line 83, in _packed
    raise Oops(f"KeyError: {{text}}")
    ^^^^^^^^^^
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
Caused by: java.io.IOException: No space left on device
"""


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (WORKER.format("", "pyarrow.lib.ArrowInvalid: Expected bytes"), "pyarrow.lib.ArrowInvalid: Expected bytes"),
        (
            WORKER.format("org.apache.spark.api.python.PythonException: ", "my.deep.module.Stop: no: more"),
            "my.deep.module.Stop: no: more",
        ),
        (WORKER.format("", "ValueError: 3 is odd"), "ValueError: 3 is odd"),
        (WORKER.format("", "goffish.errors.StoreError: s: missing\n\nDuring handling …\nX: y"),
         "goffish.errors.StoreError: s: missing"),
        ("Job aborted.\n\tat org.apache.spark.X(Y.scala:1)\nValueError: in the worker", "ValueError: in the worker"),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/a.csv. SQLSTATE: 42K03",
            "[PATH_NOT_FOUND] Path does not exist: file:/a.csv. SQLSTATE: 42K03",
        ),
        ("\tat org.apache.spark.X(Y.scala:1)\norg.apache.spark.SparkException: Job 3 cancelled",
         "org.apache.spark.SparkException: Job 3 cancelled"),
        (
            "An error occurred while calling o101.csv.\n: org.apache.spark.SparkException: Job aborted\n\tat x.Y(Z:1)",
            "org.apache.spark.SparkException: Job aborted",
        ),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_the_line_that_says_what_went_wrong(message: str, told: str) -> None:
    """Breaks when the name of a Python error with dots, or a frame of a stack trace, hides what went wrong."""
    assert first_line(RuntimeError(message)) == told


def test_long_lines_are_cut() -> None:
    assert len(first_line(RuntimeError("x" * 1000))) == 300
