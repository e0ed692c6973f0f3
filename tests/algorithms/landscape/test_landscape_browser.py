"""The page in a real browser: mouse, keys and search do what the page says, and nothing is fetched or complained of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import goffish as gf
from goffish.plot.landscape import write_page
from tests.algorithms.landscape.chromium import NAMES, Browser, executable
from tests.algorithms.landscape.landscape_graphs import HOSTILE, cliques, karate

pytestmark = pytest.mark.skipif(executable() is None, reason=f"no browser: none of {', '.join(NAMES)} is on the path")

TRAIL = "document.querySelector('#trail').textContent"
NAME = "document.querySelector('#name').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    # Without motion, what a click leads to is there at once.
    started.emulate(prefers_reduced_motion="reduce")
    yield started
    started.close()


@pytest.fixture(autouse=True)
def calm(browser: Browser) -> Iterator[None]:
    browser.complaints.clear()
    browser.requests.clear()
    yield
    assert browser.complaints == []
    assert all(address.startswith("file:") for address in browser.requests), browser.requests


def largest(browser: Browser) -> str:
    """Selector of the largest circle that can be zoomed into."""
    node = browser.evaluate(
        "[...document.querySelectorAll('.open')].sort((a, b) => b.firstChild.r.baseVal.value"
        " - a.firstChild.r.baseVal.value)[0].dataset.node"
    )
    return f'.open[data-node="{node}"] > circle'


def members(browser: Browser) -> list[str]:
    shown: list[str] = browser.evaluate(
        "[...document.querySelectorAll('#central tbody button')].map(b => b.textContent)"
    )
    return shown


def test_mouse(browser: Browser, tmp_path: Path) -> None:
    found = gf.landscape(karate())
    browser.open(write_page(found, tmp_path / "k.html", name="karate"))
    top = found.communities.num_levels
    best = max(found.table.to_pylist(), key=lambda row: row["betweenness"])
    assert browser.evaluate(NAME) == "The whole graph"
    assert members(browser)[0] == str(best["vertex"])
    browser.click(largest(browser))
    [first] = {row["community"] for row in found.table.slice(0, 1).to_pylist()}
    assert browser.evaluate(NAME) == f"Community {first} of level {top}"
    expected = [row for row in found.table.to_pylist() if (row["level"], row["community"]) == (top, first)]
    assert members(browser) == [str(row["vertex"]) for row in expected]
    while browser.evaluate("document.querySelectorAll('.open').length"):
        browser.click(largest(browser))
    assert browser.evaluate("document.querySelectorAll('.member[tabindex]').length") == len(members(browser))
    browser.click(".member[tabindex] > circle")
    assert browser.evaluate("document.querySelectorAll('.member.found').length") == 1
    tip = "document.querySelector('#tip')"
    assert browser.evaluate(f"{tip}.hidden") is True
    x, y = browser.evaluate("(b => [b.x + b.width / 2 + 3, b.y + b.height / 2])"
                            "(document.querySelector('.member[tabindex]').getBoundingClientRect())")  # fmt: skip
    browser.point(x, y)
    assert "betweenness" in browser.evaluate(f"{tip}.textContent")
    browser.click("#trail button")
    assert browser.evaluate(NAME) == "The whole graph"
    browser.click(largest(browser))
    browser.click("#map", across=0.995, down=0.995)
    assert browser.evaluate(NAME) == "The whole graph", "a click outside does not zoom out"


def test_keys(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_page(gf.landscape(karate()), tmp_path / "k.html"))
    browser.press("Tab")
    active = "document.activeElement.closest('[data-node]')?.dataset.node"
    for _ in range(10):
        if browser.evaluate(active):
            break
        browser.press("Tab")
    one = browser.evaluate(active)
    browser.press("ArrowRight")
    other = browser.evaluate(active)
    assert None not in (one, other)
    assert one != other
    label = browser.evaluate("document.activeElement.getAttribute('aria-label')")
    browser.press("Enter")
    assert browser.evaluate(NAME) == label.split(",")[0]
    assert browser.evaluate(active), "the focus is lost"
    browser.press("Escape")
    assert browser.evaluate(NAME) == "The whole graph"
    assert browser.evaluate(active) == other, "Esc does not lead back to where one was"
    assert browser.evaluate("document.querySelector('#map').classList.contains('whole')")


def test_search(browser: Browser, tmp_path: Path) -> None:
    found = gf.landscape(gf.read("data/power.metis.gz"))
    browser.open(write_page(found, tmp_path / "p.html"))
    label = str(found.table["vertex"][0].as_py())
    browser.click("#wanted")
    browser.type(label)
    assert browser.evaluate("document.querySelector('#matches button').textContent") == label
    browser.press("Enter")
    assert browser.evaluate("document.querySelector('tr.found button').textContent") == label
    assert browser.evaluate("document.querySelectorAll('.member.found').length") == 1
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('#wanted').value") == ""
    browser.type("nobody")
    assert browser.evaluate("document.querySelector('#answer').textContent").startswith("No match among the ")


def test_names_do_not_overlap(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_page(gf.landscape(gf.read("data/power.metis.gz")), tmp_path / "p.html"))
    overlaps = """(() => {
      const boxes = [...document.querySelectorAll('text.name')].map((t) => t.getBoundingClientRect());
      const hit = (a, b) => a.x < b.right - 2 && b.x < a.right - 2 && a.y < b.bottom - 4 && b.y < a.bottom - 4;
      return [boxes.length, boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => hit(a, b))).length];
    })()"""
    names, both = browser.evaluate(overlaps)
    assert names >= 40
    assert both == 0


def test_motion_ends_where_it_aims(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_page(gf.landscape(karate()), tmp_path / "k.html"))
    aimed = "(c => c && c.getBoundingClientRect().width)(document.querySelector('circle.here'))"
    browser.emulate(prefers_reduced_motion="no-preference")
    try:
        browser.click(largest(browser))
        browser.wait_for("document.querySelector('#map').firstChild.getAttribute('transform').includes('scale(1)')")
        smooth = browser.evaluate(aimed)
    finally:
        browser.emulate(prefers_reduced_motion="reduce")
    browser.click("#trail button")
    browser.click(largest(browser))
    assert browser.evaluate(aimed) == pytest.approx(smooth)


def test_hostile_labels_do_nothing(browser: Browser, tmp_path: Path) -> None:
    src, dst = [HOSTILE[0], HOSTILE[0], HOSTILE[1], HOSTILE[3]], [HOSTILE[1], HOSTILE[2], HOSTILE[2], HOSTILE[4]]
    found = gf.landscape(gf.from_edges(src, dst))
    browser.open(write_page(found, tmp_path / "h.html", name="</title><script>alert(1)</script>"))
    assert browser.evaluate("document.images.length + document.scripts.length") == 2
    browser.click(largest(browser))
    assert set(members(browser)) <= set(HOSTILE)
    assert browser.evaluate("document.title") == "Communities of </title><script>alert(1)</script>"


@pytest.mark.parametrize("size", [0, 1, 4])
def test_almost_nothing(browser: Browser, tmp_path: Path, size: int) -> None:
    browser.open(write_page(gf.landscape(gf.from_edges([], [], labels=list(range(size)))), tmp_path / "e.html"))
    assert browser.evaluate("document.querySelectorAll('.open').length") == size
    if size:
        browser.click(largest(browser))
        assert len(members(browser)) == 1


def test_many_communities(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_page(gf.landscape(cliques(5000, 6)), tmp_path / "m.html"))
    assert browser.evaluate("document.querySelectorAll('.open').length") == 100
    browser.click(".rest")
    assert browser.evaluate(NAME) == "The whole graph", "what is merged cannot be zoomed into"
    assert "4,900 more" in browser.evaluate("document.querySelector('#parts').textContent")
