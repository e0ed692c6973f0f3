"""The examples of other languages run against a real server: grpcurl, and Go on stubs that are generated here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.package.pages import blocks
from tests.services.api.serving import serving

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "service"
GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command that finds a server of its own."""
    room = tmp_path_factory.mktemp("examples")

    def call(*command: str, cwd: Path = room, check: bool = True) -> subprocess.CompletedProcess[str]:
        found = subprocess.run(
            command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0 or not check, found.stdout + found.stderr
        return found

    with serving(room / "home", data, "--grace", "1", listen="127.0.0.1:0") as server:
        environment = {"GOFFISH_SERVER": server.address, "PYTHON": sys.executable}
        yield call


@pytest.fixture(scope="module")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The example in Go, built outside of the checkout."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("protoc is not installed: pip install 'grpcio-tools>=1.76,<1.77'")
    room = tmp_path_factory.mktemp("checkout")
    folder = room / "examples" / "service" / "go"
    shutil.copytree(EXAMPLES / "go", folder, ignore=shutil.ignore_patterns("goffishv1"))
    shutil.copytree(EXAMPLES.parents[1] / "proto", room / "proto")
    fetched = subprocess.run(["go", "mod", "download"], cwd=folder, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"the modules of the example cannot be had: {fetched.stderr.splitlines()[-1]}")
    for command in (["sh", "generate.sh"], ["go", "vet", "."], ["go", "build", "-o", "client", "."]):
        made = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHON": sys.executable},
        )
        assert made.returncode == 0, made.stdout + made.stderr
    return str(folder / "client")


@pytest.mark.slow
def test_go(go_client: str, run: Run, tmp_path: Path) -> None:
    """Breaks when a client on generated stubs cannot do what is documented: submit, watch, fetch, plan."""
    output = tmp_path / "result.arrow"
    said = run(go_client, "store", str(output)).stdout.splitlines()
    assert said[0].endswith("known before: false") and any("RUNNING" in line for line in said)
    assert "DONE" in said[-3] and said[-2].startswith(f"{output.stat().st_size} bytes")
    assert said[-1].startswith("linear-road: ") and "relative throughput 0." in said[-1]
    assert pa.ipc.open_stream(output.read_bytes()).read_all().num_rows == 400
    again = run(go_client, "store", str(output)).stdout.splitlines()
    assert again[0].split(",")[0] == said[0].split(",")[0] and again[0].endswith("known before: true")
    wrong = run(go_client, "nothing", str(output), check=False)
    assert wrong.returncode == 1 and "spec.graph.input_uri" in wrong.stderr


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example for shells, with grpcurl, which is built if there is none."""
    with pytest.MonkeyPatch.context() as patch:
        if shutil.which("grpcurl") is None:
            if shutil.which("go") is None:
                pytest.skip(f"neither grpcurl nor Go is installed: go install {GRPCURL}")
            place = str(tmp_path_factory.mktemp("bin"))
            environment = os.environ | {"GOBIN": place}
            made = subprocess.run(
                ["go", "install", GRPCURL], env=environment, capture_output=True, text=True, check=False
            )
            if made.returncode != 0:
                pytest.skip(f"grpcurl cannot be had: {made.stderr.splitlines()[-1]}")
            patch.setenv("PATH", place, prepend=os.pathsep)
        yield str(EXAMPLES / "grpcurl.sh")


@pytest.mark.slow
def test_grpcurl(script: str, run: Run) -> None:
    """Breaks when a shell cannot do the same with what the server's reflection tells."""
    assert "goffish.v1.JobService" in run(script, "list").stdout.split()
    assert "rpc Submit" in run(script, "describe", "goffish.v1.JobService").stdout
    assert "rpc Submit" in run(script, "describe", "goffish.v1.JobService.Submit").stdout
    job = json.loads(run(script, "submit", "components", "store", "monday").stdout)["job"]
    assert json.loads(run(script, "submit", "components", "store", "monday").stdout)["known"] is True
    assert "JOB_STATE_DONE" in run(script, "watch", job["id"]).stdout
    assert json.loads(run(script, "get", job["id"]).stdout)["job"]["state"] == "JOB_STATE_DONE"
    assert json.loads(run(script, "plan", "sc13-diamond").stdout)["plan"]["machines"]
    assert json.loads(run(script, "health").stdout)["status"] == "SERVING"
    wrong = run(script, "plan", "nothing", check=False)
    assert wrong.returncode != 0 and "setting.dataflow_name" in wrong.stderr


@pytest.mark.slow
def test_the_guide(run: Run, tmp_path: Path) -> None:
    """Breaks when the Python of the client guide does not do what the guide says."""
    root = EXAMPLES.parents[1]
    script = tmp_path / "guide.py"
    script.write_text(blocks(root / "docs" / "guides" / "service-clients.md", "py"))
    for name in ("data", "examples"):
        (tmp_path / name).symlink_to(root / name)
    said = run(sys.executable, str(script), cwd=tmp_path).stdout
    assert "1899 ['vertex', 'rank']" in said and "machines for " in said
    assert "INVALID_ARGUMENT spec.graph.options: " in said and '"components": 4' in said
    assert (
        "0.5 USD per hour; machines: 1" in said
        and pa.ipc.open_stream((tmp_path / "intervals.arrows").read_bytes()).read_all()
    )


def test_the_threat_model_names_tests_that_exist() -> None:
    """Breaks when a promise of the threat model is not proved any more."""
    root = EXAMPLES.parents[1]
    named = re.findall(
        r"`(test_\w+\.py)::(\w+)`", (root / "docs" / "concepts" / "threat-model.md").read_text(encoding="utf-8")
    )
    assert len(named) > 20
    for file, name in set(named):
        found = [path for path in (root / "tests").rglob(file) if f"def {name}(" in path.read_text()]
        assert found, f"{file}::{name}"
