"""URLs of masters of Spark: what they name, what is refused, and that secrets in them are not shown."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from goffish.errors import InputError
from goffish.gopher.spark.master import Master
from goffish.gopher.spark.session import first_line, session

TOKEN = "sc://spark.example/;use_ssl=true;token=s3%2Fcr3t==;x-key=other"


@pytest.mark.parametrize(
    ("url", "kind", "addresses"),
    [
        ("local", "local", ()),
        ("local[*]", "local", ()),
        ("local-cluster[2,1,1024]", "local", ()),
        ("yarn", "yarn", ()),
        ("spark://a:7078,b", "standalone", (("a", 7078), ("b", 7077))),
        ("k8s://https://kube.example:6443", "kubernetes", (("kube.example", 6443),)),
        ("k8s://kube.example", "kubernetes", (("kube.example", 443),)),
        ("sc://[::1]", "connect", (("::1", 15002),)),
        (TOKEN, "connect", (("spark.example", 15002),)),
    ],
)
def test_what_a_url_names(url: str, kind: str, addresses: tuple[tuple[str, int], ...]) -> None:
    found = Master.of(url)
    assert (found.kind, found.addresses) == (kind, addresses)


@pytest.mark.parametrize(
    "url",
    ["", "mesos://a:5050", "spark://", "spark://a:port", "spark://a:7077/x", "sc://a/b", "k8s://a;b", "localhost"],
)
def test_what_names_no_master(url: str) -> None:
    with pytest.raises(InputError, match=r"^--spark-master .*: not a Spark master; accepted are local\[N\], spark://"):
        Master.of(url, "--spark-master")


def test_secrets_are_not_shown() -> None:
    """Breaks when an error, which ends up in logs and events, shows the token or a header of the URL."""
    master = Master.of(TOKEN)
    assert master.has_secrets and not Master.of("sc://a/;use_ssl=true;user_id=ann").has_secrets
    assert master.shown == "sc://spark.example"
    said = master.hide(f"cannot use {TOKEN}: token s3/cr3t== (s3%2Fcr3t==) of other")
    assert not any(secret in said for secret in ("s3/cr3t", "s3%2Fcr3t", "other"))
    with pytest.raises(InputError) as caught:
        Master.of("sc://spark.example/path/;token=s3cr3t")
    assert "s3cr3t" not in str(caught.value)


def test_a_session_that_others_can_end() -> None:
    number = "4c5ee5a5-4b8f-4a0e-8e0c-5b1f63c4a111"
    assert Master.of("sc://a:1").in_session(number) == f"sc://a:1/;session_id={number}"
    assert Master.of("sc://a:1/;token=x;session_id=y").in_session(number) == f"sc://a:1/;token=x;session_id={number}"


def test_a_master_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        Master.of(f"spark://127.0.0.1:1,127.0.0.1:{port}").check()
    with pytest.raises(InputError, match=rf"^Spark master spark://127.0.0.1:{port}: cannot connect to 127.0.0.1"):
        Master.of(f"spark://127.0.0.1:{port}").check()


@pytest.mark.parametrize("given", [{"packages": ("a:b:c",)}, {"graphframes": True}, {"memory": "1g"}])
def test_what_a_server_of_spark_connect_sets(given: dict[str, Any]) -> None:
    pytest.importorskip("pyspark")
    name = next(iter(given))
    with pytest.raises(InputError, match=f"^{name}: set by the server of Spark Connect; omit it"):
        session(master="sc://127.0.0.1:1", **given)


def test_an_error_of_grpc_in_one_line() -> None:
    said = (
        '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAUTHENTICATED\n\tdetails = "Wrong"\n'
    )
    assert first_line(RuntimeError(said)) == "Wrong"
