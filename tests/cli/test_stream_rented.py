"""Options of flows on rented machines, as far as nothing is rented."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import assert_refused, call

FLOW = """
import goffish as gf
flow = gf.stream.Flow("numbers")
flow.source(gf.stream.generate(10)).sink(gf.stream.write_json_lines("out"))
"""
REMOTE = ("--cloud", "ec2-2025", "--jobs", "s3://lake/jobs", "--listen", "127.0.0.1:0")


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers_flow.py").write_text(FLOW)
    return "numbers_flow.py"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--market", "spot"), "--market spot: requires --provider"),
        (("--provider-options", "aws.yaml"), "--provider-options aws.yaml: requires --provider"),
        (("--cloud", "ec2-2025"), "--cloud requires --policy or --provider"),
        (("--provider", "aws", *REMOTE[2:]), "--provider aws: requires --cloud"),
        (("--provider", "kubernetes", *REMOTE[:2], *REMOTE[4:]), "--provider kubernetes: requires --jobs"),
        (("--provider", "aws", *REMOTE[:4]), "--provider aws: requires --listen"),
        (("--provider", "aws", *REMOTE, "--jobs", "/shared"), "--jobs /shared: must be a URI of object storage, such "),
        (
            ("--provider", "aws", *REMOTE),
            "--provider aws: the machines of a flow connect to each other; give security_groups in ",
        ),
        (("--provider", "kubernetes", *REMOTE), "--provider kubernetes: requires --provider-options, "),
        (("--provider", "local", "--provider-options", "a.yaml"), "--provider-options does not apply to --provider lo"),
        (("--provider", "local", "--machine-type", "x"), "--machine-type x: unknown; the catalogue has core"),
        (("--provider", "local", "--token", "x" * 20), "--token: not with --provider; each run makes a token and cert"),
        (
            ("--provider", "local", "--policy", "ds2", "--elements", "sink", "--cloud", "ec2-2015-spot"),
            "has simulated interruptions (market: spot), which rented machines do not follow; give types of market: ",
        ),
        (
            ("--provider", "local", "--workers", "12"),
            "12 workers need 12 machines of type core; --max-machines 10 allows fewer",
        ),
        (
            ("--provider", "local", "--workers", "2", "--hourly-budget", "1.5"),
            "2 workers need 2 machines of type core, for 2 core-hours per hour; --hourly-budget 1.5 allows less",
        ),
        (
            ("--provider", "local", "--workers", "3", "--max-machines", "2"),
            "3 workers need 3 machines of type core; --max-machines 2 allows fewer",
        ),
    ],
)  # fmt: skip
def test_options_that_are_refused(flow: str, options: tuple[str, ...], message: str) -> None:
    """Breaks when a run that cannot be is found out after machines were requested."""
    ended = call("stream", "run", flow, *options)
    assert_refused(ended)
    assert message in ended.err
