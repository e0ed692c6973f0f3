"""Machine classes and what they cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.billing import billed_quanta, paid_left_s, rent
from goffish.cloud.catalogue import Billing, Catalogue, known_catalogues, read_catalogue
from goffish.errors import GoffishWarning, InputError
from goffish.scheduling.dataflow.model import read_dataflow

HOURLY = Billing(quantum_s=3600)
GOOD: dict[str, Any] = {"classes": [{"name": "m", "cores": 2, "price_per_hour": 0.1}]}


def test_catalogues_that_come_along() -> None:
    """Breaks when a file that is shipped is not valid, or the published classes differ."""
    assert {"ec2-2013", "ec2-2013-m1", "ec2-2025"} <= set(known_catalogues())
    for name in known_catalogues():
        assert read_catalogue(name).source
    six = read_catalogue("ec2-2013")
    assert six.classes[six.largest].name == "m3.2xlarge"
    assert six.powers.tolist() == [1, 2, 4, 8, 13, 26]
    assert [six.classes[c].name for c in six.by_power][:2] == ["m3.2xlarge", "m3.xlarge"]
    assert [c.name for c in six.only(["m1.large", "m1.small"]).classes] == ["m1.large", "m1.small"]
    m1 = read_catalogue("ec2-2013-m1")
    assert np.allclose(m1.prices / m1.powers, 0.06)


def test_hours_as_the_specification_bills_them() -> None:
    """G5 of docs/specs/provisioning.md, section 7, in dollars."""
    minutes = np.array([0, 1, 59, 60, 61, 120, 720])
    assert rent(minutes * 60.0, 0.24, HOURLY) == pytest.approx([0, 0.24, 0.24, 0.24, 0.48, 0.48, 2.88])
    # From minute 10 to 70, 71 and 75.
    assert rent(np.array([60, 61, 65]) * 60.0, 0.24, HOURLY) == pytest.approx([0.24, 0.48, 0.48])


def test_seconds_with_a_minimum() -> None:
    by_second = Billing(quantum_s=1, minimum_s=60)
    assert billed_quanta(np.array([0.0, 0.5, 60.0, 60.5]), by_second).tolist() == [0, 60, 60, 61]


@given(st.floats(0.1, 1e6), st.floats(1, 7200))
def test_paid_time_ends_with_a_quantum(elapsed: float, quantum: float) -> None:
    """Breaks when a machine is kept beyond its paid time, or a stop at its end is charged for another quantum."""
    billing = Billing(quantum_s=quantum)
    left = float(paid_left_s(elapsed, billing))
    assert 0 < left <= quantum + 1e-6
    assert billed_quanta(elapsed + left, billing) == billed_quanta(elapsed + left / 2, billing)
    assert billed_quanta(elapsed + left + 0.01, billing) == billed_quanta(elapsed + left / 2, billing) + 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"classes": []}, "classes"),
        ({"classes": [{"name": "m", "cores": 0, "price_per_hour": 1}]}, r"classes\[0\]\.cores = 0: .*greater than"),
        ({"classes": [{"name": "m", "cores": 1, "price_per_hour": -1}]}, r"price_per_hour = -1"),
        ({"classes": [{"name": "m", "cores": 1, "price_per_hour": 1, "speed": float("nan")}]}, "speed = nan"),
        (
            {"classes": [*GOOD["classes"], *GOOD["classes"]]},
            r"catalogue: classes = \[\{'name': 'm', 'cores': 2, 'price_per_hour': 0\.1\},",
        ),
        ({"billing": {"quantum_s": 0}}, r"billing\.quantum_s = 0"),
        ({"billing": {"hours": 1}}, r"billing\.hours: unknown field; choose from quantum_s, minimum_s"),
        ({"startup_s": -1}, "startup_s = -1"),
        ({"classes": [GOOD["classes"][0] | {"limit": 0}]}, r"classes\[0\]\.limit = 0: .*greater than or equal to 1"),
    ],
)
def test_what_is_no_catalogue(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_catalogue(GOOD | change)


SITES: dict[str, Any] = {
    "sites": ["edge", "fog", "cloud"],
    "links": [
        {"between": ["edge", "fog"], "latency_ms": 5, "bandwidth_mbit_s": 50},
        {"between": ["fog", "cloud"], "latency_ms": 20, "bandwidth_mbit_s": 1000},
    ],
    "classes": [
        {"name": "box", "cores": 1, "price_per_hour": 0.1, "site": "edge"},
        {"name": "rack", "cores": 1, "price_per_hour": 0.1, "site": "cloud"},
    ],
    "latency_ms": 0.5,
}


def test_messages_take_the_route_of_least_latency() -> None:
    """By hand; breaks when delays along a route are not added, or its narrowest link does not limit it."""
    found = read_catalogue(SITES)
    assert found.network.delay_ms.tolist() == [[0.5, 5, 25], [5, 0.5, 20], [25, 20, 0.5]]
    assert found.network.bandwidth_mbit_s.tolist() == [[np.inf, 50, 50], [50, np.inf, 1000], [50, 1000, np.inf]]
    assert found.site_numbers.tolist() == [0, 2]
    assert Catalogue.model_validate_json(found.model_dump_json()) == found  # as workers of dataflow jobs get it
    slow = {"between": ["edge", "cloud"], "latency_ms": 30}
    assert read_catalogue(SITES | {"links": [*SITES["links"], slow]}).network.delay_ms[0, 2] == 25
    direct = read_catalogue(SITES | {"links": [*SITES["links"], slow | {"latency_ms": 24}]}).network
    assert direct.delay_ms[0, 2] == 24 and direct.bandwidth_mbit_s[0, 2] == np.inf
    one_place = read_catalogue(GOOD | {"latency_ms": 3}).network
    assert one_place.delay_ms.tolist() == [[3]] and one_place.bandwidth_mbit_s.tolist() == [[np.inf]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sites": []}, r"links\[0\].between: unknown site 'edge'; list it in sites"),
        ({"sites": ["edge", "fog"]}, r"links\[1\].between: unknown site 'cloud'; sites: edge, fog"),
        ({"sites": ["edge", "fog", "cloud", "edge"]}, "sites: a site is listed twice"),
        ({"sites": [f"s{at}" for at in range(101)]}, "sites = .* at most 100"),
        ({"links": SITES["links"][:1]}, "links: no route between edge and cloud; add a link"),
        (
            {"links": [{"between": ["edge", "edge"], "latency_ms": 1}]},
            r"links\[0\].between: edge and edge; give one link",
        ),
        ({"links": [*SITES["links"], SITES["links"][0]]}, r"links\[2\].between: edge and fog; give one link for each"),
        ({"links": [{"between": ["edge", "fog", "cloud"], "latency_ms": 1}]}, r"links\[0\].between"),
        ({"links": [{"between": ["edge", "fog"]}]}, r"links\[0\].latency_ms: is missing"),
        ({"links": [{"between": ["edge", "fog"], "latency_ms": -1}]}, r"links\[0\].latency_ms = -1: .*greater than"),
        ({"links": [{"between": ["edge", "fog"], "latency_ms": float("inf")}]}, r"links\[0\].latency_ms = inf"),
        (
            {"links": [{"between": ["edge", "fog"], "latency_ms": 1, "bandwidth_mbit_s": 0}]},
            r"links\[0\].bandwidth_mbit_s = 0",
        ),
        ({"classes": GOOD["classes"]}, r"machine_types\[0\].site: is missing; sites: edge, fog, cloud"),
        (
            {"classes": [GOOD["classes"][0] | {"site": "moon"}]},
            r"machine_types\[0\].site: unknown site 'moon'; sites: edge",
        ),
    ],
)
def test_wrong_sites_and_links_are_refused(change: dict[str, Any], told: str) -> None:
    """Breaks when a wrong network is taken, or the message does not name the field and what is accepted."""
    with pytest.raises(InputError, match=told) as caught:
        read_catalogue(SITES | change)
    assert "\n" not in str(caught.value)


def test_keys_of_earlier_versions(tmp_path: Path) -> None:
    """Breaks when a file with the keys of version 0.1 is refused, or read without a warning that names the new key."""
    old = {"classes": GOOD["classes"]}
    flow = {"elements": [{"id": "a", "cost": 1.0}], "inputs": {"a": 1.0}}
    (tmp_path / "cloud.json").write_text(json.dumps(old))
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    with pytest.warns(GoffishWarning, match=r"cloud.json: classes is deprecated; use machine_types$"):
        assert read_catalogue(tmp_path / "cloud.json") == read_catalogue(GOOD)
    with pytest.warns(GoffishWarning, match=r"flow.json: elements is deprecated; use processing_elements$"):
        assert read_dataflow(tmp_path / "flow.json") == read_dataflow(flow)
    (tmp_path / "cloud.json").write_text(json.dumps(old | {"machine_types": old["classes"]}))
    with (
        pytest.warns(GoffishWarning),
        pytest.raises(InputError, match=r"classes: unknown field; choose from .*machine_types"),
    ):
        read_catalogue(tmp_path / "cloud.json")


def test_files_and_names(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("machine_types:\n  - {name: m, cores: 2, price_per_hour: 0.1}\n")
    assert read_catalogue(file) == Catalogue.model_validate(GOOD)
    with pytest.raises(InputError, match="catalogue 'nothing' not found; give a file, or one of ec2-2013"):
        read_catalogue("nothing")
    with pytest.raises(InputError, match=r"unknown machine type 'x'; accepted: m"):
        read_catalogue(file).number("x")
