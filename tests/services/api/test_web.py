"""The dashboard: what it shows, to whom, and what it refuses. With a real database; in a browser at the end."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import sqlalchemy as sa

import goffish as gf
from goffish.services.api.clients import ClientList, Clients, digest
from goffish.services.store.records import State
from goffish.services.store.spec import JobSpec
from goffish.services.store.tables import JobRow
from goffish.services.web.access import SESSION_S, Sessions
from goffish.v1 import jobs_pb2
from tests.algorithms.landscape.chromium import NAMES, Browser, executable
from tests.services.api.serving import RealServer, serving, settle
from tests.services.api.web_site import BASE, HOSTILE, Parsed, Site, cloud_job, ids, make_site, proof

ROLES = {"reader": "read", "ada": "submit", "bob": "submit", "root": "admin"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """That everybody may see."""
    return make_site(tmp_path, Clients())


@pytest.fixture
def closed(tmp_path: Path) -> Site:
    """For which one needs a token."""
    known = [{"name": name, "role": role, "token_sha256": digest(f"t-{name}")} for name, role in ROLES.items()]
    return make_site(tmp_path, Clients(ClientList.model_validate({"clients": known})))


def test_ten_thousand_jobs_are_listed_by_pages_and_filters(site: Site) -> None:
    made = [
        {
            "id": f"{n:020x}", "server": "here", "client": "ada" if n % 2 else "bob",
            "what": "bfs" if n % 5 else "louvain",
            "spec": {"graph": {"algorithm": "bfs", "input_uri": "g"}}, "state": "done" if n % 10 else "queued",
            "submitted": float(n),
        }
        for n in range(10_000)
    ]  # fmt: skip
    with sa.create_engine(f"sqlite:///{site.home / 'jobs.sqlite'}").begin() as connection:
        connection.execute(sa.insert(JobRow), made)
    web = site.browser()
    expected = [f"{n:020x}" for n in range(9999, -1, -1) if n % 2 and n % 5]
    address, found = "/?client=ada&algorithm=bfs", []
    for _ in range(3):
        page = web.get(address).text
        found += ids(page)
        address = re.findall(r'rel="next" href="([^"]+)"', page)[0].replace("&amp;", "&")
    assert found == expected[:150]
    text = " ".join(Parsed(web.get("/").text).text.split())
    assert "10,000 jobs 1,000 queued" in text and "queued 1,000" in text and "done 9,000" in text
    begun = time.process_time()  # not the time of other processes of a busy machine
    for _ in range(10):
        web.get("/")
    assert (time.process_time() - begun) / 10 < 0.25
    labelled = site.job(labels={"team": "a=b"})
    assert ids(web.get("/", params={"label": "team=a=b"}).text) == [labelled.id]
    assert ids(web.get("/?state=queued&algorithm=pagerank").text) == [labelled.id]
    for wrong in ("state=lost", "label=x", "before=-1", "client=%00"):
        assert web.get(f"/?{wrong}").status_code == 400


def test_what_clients_write_is_shown_as_text(site: Site) -> None:
    options = {"input_uri": HOSTILE, "options": {HOSTILE: HOSTILE}}
    job = site.job(HOSTILE, HOSTILE, graph=options, labels={HOSTILE: HOSTILE})
    job = site.run(job, State.PROVISIONING)
    job = site.jobs.note(job, "progress", HOSTILE, {"class": HOSTILE, HOSTILE: HOSTILE})
    job = site.jobs.move(job, State.FAILED, HOSTILE, summary={HOSTILE: HOSTILE})
    drawn = cloud_job(site, name=HOSTILE)
    folder = site.home / "jobs" / job.id
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text(f"{HOSTILE}\n")
    web = site.browser()
    addresses = ("/", f"/jobs/{job.id}", f"/jobs/{drawn.id}", "/jobs/<script>alert(1)", f"/?state={HOSTILE}")
    for page in [web.get(address).text for address in addresses]:
        read = Parsed(page)
        scripts = [given for tag, given in read.tags if tag == "script"]
        assert scripts[0]["src"].startswith("/static/app.js?")
        assert all(
            given.get("src", "").startswith("/static/") or given["type"] == "application/json" for given in scripts
        )
        assert len(scripts) == (5 if 'id="charts"' in page else 1)
        assert not [given for _, given in read.tags if any(n.startswith("on") or n == "style" for n in given)]
        assert "javascript:" not in page and "alert(" in read.text
    assert Parsed(web.get(f"/jobs/{job.id}").text).text.count(HOSTILE) >= 9
    machines = Parsed(web.get(f"/jobs/{drawn.id}").text).charts["charts"][0]
    assert machines["lanes"] == ["state", f"{HOSTILE} · on demand", f"{HOSTILE} · spot"]


def test_pages_need_a_session_where_there_are_clients(closed: Site) -> None:
    job, web = closed.job(), closed.browser()
    for address in ("/", f"/jobs/{job.id}", f"/jobs/{job.id}/spec.json", f"/jobs/{job.id}/log.txt",
                    f"/jobs/{job.id}/result.csv"):  # fmt: skip
        answer = web.get(address, follow_redirects=False)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/login?next=%2F"), address
        assert job.id not in answer.text
    assert web.post(f"/jobs/{job.id}/cancel").status_code == 401
    page = web.get("/login").text
    before = web.cookies["goffish_7078"]
    for wrong in ("", "t-nobody", f"t-ada{HOSTILE}"):
        assert web.post("/login", data={"token": wrong, "proof": proof(page)}).status_code == 401
    assert web.get("/", follow_redirects=False).status_code == 303
    target = f"/jobs/{job.id}"
    answer = web.post(f"/login?next={target}", data={"token": "t-reader", "proof": proof(page)}, follow_redirects=False)
    assert answer.headers["location"] == target
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "t-reader" not in cookie
    assert web.cookies["goffish_7078"] != before
    assert "reader · read" in Parsed(web.get("/").text).text
    for elsewhere in ("//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\nb"):
        answer = web.post("/login", params={"next": elsewhere}, follow_redirects=False,
                          data={"token": "t-reader", "proof": proof(web.get("/login").text)})  # fmt: skip
        assert answer.headers["location"] == "/", elsewhere
    old = web.cookies["goffish_7078"]
    assert web.post("/logout", data={"proof": proof(web.get("/").text)}, follow_redirects=False).status_code == 303
    assert web.get("/", headers={"cookie": f"goffish_7078={old}"}, follow_redirects=False).status_code == 303


def test_sessions_end_by_themselves() -> None:
    """Breaks when a session outlasts its time, or its client."""
    now, known = [0.0], {"clients": [{"name": "a", "role": "read", "token_sha256": digest("t")}]}
    clients = Clients(ClientList.model_validate(known))
    sessions = Sessions(clients, lambda: now[0])
    begun = sessions.begin("t")
    assert begun is not None and sessions.client(begun[0]) == begun[1]
    assert sessions.proves(begun[0], sessions.proof(begun[0])) and not sessions.proves("", sessions.proof(""))
    now[0] = SESSION_S
    assert sessions.client(begun[0]) is None
    begun = sessions.begin("t")
    assert begun is not None and sessions.client(begun[0]) == begun[1]
    clients.replace(ClientList())
    assert sessions.client(begun[0]) is None and sessions.begin("t") is None


def test_who_may_cancel(closed: Site, caplog: pytest.LogCaptureFixture) -> None:
    expected = {"reader": 403, "bob": 403, "ada": 303, "root": 303}
    for name, status in expected.items():
        job, web = closed.job(), closed.browser(name)
        page = web.get(f"/jobs/{job.id}").text
        assert ("/cancel" in page) == (status == 303), name
        with caplog.at_level(logging.INFO, "goffish.audit"):
            answer = web.post(f"/jobs/{job.id}/cancel", data={"proof": proof(page)}, follow_redirects=False)
        assert answer.status_code == status, name
        assert (closed.jobs.get(job.id).state == State.CANCELLED) == (status == 303)
        assert f'"client": "{name}"' in caplog.text and "web cancel" in caplog.text
        caplog.clear()
    # A client that could submit once, and may only read now, cancels not even its own.
    job, web = closed.job("reader"), closed.browser("reader")
    sent = {"proof": proof(web.get("/").text)}
    assert web.post(f"/jobs/{job.id}/cancel", data=sent).status_code == 403
    assert closed.browser("root").get("/jobs/0").status_code == 404


def test_flows_are_shown_and_stopped(closed: Site) -> None:
    """Breaks when the page of a flow shows no rates, shows texts of clients as code, or a reader can stop it."""
    spec = JobSpec.model_validate({"flow": {"flow": "orders"}})
    job = closed.run(closed.jobs.submit(spec, "ada")[0], State.PROVISIONING, State.RUNNING)
    folder = closed.pages.supervisor.folder(job.id)
    assert ">Flow " not in closed.browser("ada").get(f"/jobs/{job.id}").text
    flow = gf.stream.Flow("orders")
    numbers = flow.source(gf.stream.generate(2500), name="numbers")
    numbers.sink(gf.stream.collect(), name="out")
    folder.prepare({}, 1)
    update = {"changes": "changed price", "state": "aborted", "strategy": "mvc", "reason": "<script>alert()</script>"}
    metrics = flow.run().to_dict()
    folder.report({"turn": "1", "version": 3, "updating": False, "updates": [update], "metrics": metrics})
    address = f"/jobs/{job.id}/stop"
    for name, may in (("reader", False), ("bob", False), ("ada", True), ("root", True)):
        web = closed.browser(name)
        page = web.get(f"/jobs/{job.id}").text
        assert "Flow orders <small>version 3</small>" in page and "&lt;script&gt;alert()&lt;/script&gt;" in page
        assert re.search(r"numbers</th><td>source</td>.*?2,500", page)
        assert ("/stop" in page) == may, name
        answer = web.post(address, data={"proof": proof(page)}, follow_redirects=False)
        assert answer.status_code == (303 if may else 403), name
        assert bool(folder.wishes.get("stop")) == may
    assert [event.kind for event in closed.jobs.events(job.id)].count("stop") == 1
    assert closed.browser("ada").post(address, data={"proof": "0" * 64}).status_code == 403


def test_other_sites_cannot_cancel(site: Site) -> None:
    job, web, other = site.job(), site.browser(), site.browser()
    address, good = f"/jobs/{job.id}/cancel", proof(web.get(f"/jobs/{site.job().id}").text)
    attempts: list[dict[str, Any]] = [
        {}, {"data": {"proof": "0" * 64}}, {"data": {"proof": proof(other.get(f"/jobs/{job.id}").text)}},
        {"data": {"proof": good}, "headers": {"sec-fetch-site": "cross-site"}},
        {"data": {"proof": good}, "headers": {"sec-fetch-site": "same-site"}},
        {"data": {"proof": good}, "headers": {"origin": "http://evil.example"}},
    ]  # fmt: skip
    for given_ in attempts:
        assert web.post(address, **given_).status_code == 403, given_
    assert site.browser().post(address, data={"proof": good}).status_code == 403
    assert web.post(address, content=b"x" * 20_000).status_code == 400
    assert web.get(address).status_code == 405
    assert site.jobs.get(job.id).state == State.QUEUED
    assert web.post(address, data={"proof": good}, headers={"origin": BASE, "sec-fetch-site": "same-origin"}).is_success
    assert site.jobs.get(job.id).state == State.CANCELLED


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("127.9.9.9:80", 200), ("localhost:7078", 200), ("[::1]:7078", 200), ("LOCALHOST", 200),
     ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("localhost.evil.example:80", 421), ("10.0.0.1", 421),
     ("0.0.0.0", 421), ("", 421), ("localhost:80@evil", 421), ("[::2]", 421)],
)  # fmt: skip
def test_names_of_this_computer_only(site: Site, host: str, status: int) -> None:
    for address in ("/", "/metrics", "/healthz", "/static/app.js"):
        assert site.browser().get(address, headers={"host": host}).status_code == status


def test_headers_and_what_machines_ask_for(closed: Site) -> None:
    web, job = closed.browser(), closed.job()
    for address in ("/login", "/nothing", "/metrics", "/static/style.css", f"/jobs/{job.id}"):
        headers = web.get(address).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"
    assert web.get("/nothing").status_code == 404 and web.get("/static/..%2fpages.py").status_code == 404
    told = web.get("/metrics").text
    assert 'goffish_jobs{state="queued"} 1.0' in told and 'method="web login"' in told
    assert web.get("/healthz").text == "ok\n"
    (closed.home / "jobs.sqlite").unlink()
    closed.jobs._reads.dispose()
    assert web.get("/healthz").status_code == 503 and web.get("/metrics").status_code == 503


def test_results_logs_and_specifications_are_downloaded(site: Site) -> None:
    table = pa.table({"vertex": range(200_000), "rank": [0.5] * 200_000, "kin": [[1, 2], None] * 100_000})
    job = site.run(site.job(), State.PROVISIONING, State.RUNNING)
    web = site.browser()
    assert web.get(f"/jobs/{job.id}/result.csv").status_code == 409
    job = site.jobs.move(job, State.DONE)
    assert web.get(f"/jobs/{job.id}/result.csv").status_code == 404
    folder = site.home / "jobs" / job.id
    folder.mkdir(parents=True)
    with pa.ipc.new_stream(str(folder / "result.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=65536)
    (folder / "log.txt").write_text("one\ntwo\n")
    answers = {kind: web.get(f"/jobs/{job.id}/result.{kind}") for kind in ("arrow", "parquet", "csv")}
    assert f'filename="{job.id}.csv"' in answers["csv"].headers["content-disposition"]
    assert pa.ipc.open_stream(answers["arrow"].content).read_all() == table
    assert pyarrow.parquet.read_table(io.BytesIO(answers["parquet"].content)) == table
    read = pyarrow.csv.read_csv(io.BytesIO(answers["csv"].content))
    assert read["vertex"] == table["vertex"] and read["rank"] == table["rank"]
    assert read["kin"].to_pylist()[:2] == ["[1, 2]", ""]
    assert web.get(f"/jobs/{job.id}/result.xls").status_code == 404
    assert web.get(f"/jobs/{job.id}/log.txt").text == "one\ntwo\n"
    assert JobSpec.model_validate(web.get(f"/jobs/{job.id}/spec.json").json()) == job.spec


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    started = Browser(tmp_path / "profile")
    yield started
    started.close()


@pytest.mark.slow
@pytest.mark.skipif(executable() is None, reason=f"no browser: none of {', '.join(NAMES)} is on the path")
def test_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """A real server: jobs appear by themselves, can be cancelled, and the page outlives a server that is killed."""
    data, text = tmp_path / "data", "document.querySelector('main').innerText"
    data.mkdir()
    (data / "g.txt").write_text("".join(f"{n} {(n * 7 + 1) % 100}\n" for n in range(100)))

    def visit(url: str) -> None:
        browser._call("Page.navigate", url=url)
        browser.wait_for(f"location.href == '{url}' && document.readyState == 'complete'")

    with serving(tmp_path / "home", data, "--slots", "1", "--web", "127.0.0.1:0") as server:
        assert server.process is not None and server.process.stdout is not None
        told = server.process.stdout.readline()
        assert re.fullmatch(r"dashboard on http://127\.0\.0\.1:\d+/\n", told)
        url, client = told.split()[-1], server.client()
        visit(url)
        assert "No jobs yet" in browser.evaluate(text)
        done = client.submit_graph("pagerank", "g.txt", labels={"team": HOSTILE[:40]}).id
        browser.wait_for(f"{text}.includes('{done[:10]}') && performance.getEntriesByType('navigation').length == 1")
        settle(client, [done])
        browser.wait_for("document.querySelector('.chip.done b').textContent == '1'")
        assert HOSTILE[:25] in browser.evaluate(text)
        visit(f"{url}jobs/{done}")
        bar = "#drawings svg [fill='var(--process)']"
        browser.wait_for(f'document.querySelectorAll("{bar}").length == 1')
        assert browser.evaluate(f'getComputedStyle(document.querySelector("{bar}")).fill') != "rgb(0, 0, 0)"
        held = client.submit_graph("pagerank", "g.txt").id
        while not (workers := server.workers()):
            time.sleep(0.02)
        workers[0].suspend()
        waits = client.submit_graph("pagerank", "g.txt").id
        visit(f"{url}jobs/{waits}")
        browser.evaluate("window.confirm = () => true")
        browser.click("#cancel")
        browser.wait_for("document.querySelector('.head .state')?.innerText == 'cancelled'")
        assert client.job(waits).state == jobs_pb2.JOB_STATE_CANCELLED
        workers[0].resume()
        assert browser.complaints == []
        assert browser.requests and all(one.startswith(url) for one in browser.requests), browser.requests
        visit(url)
        server.kill()
        browser.wait_for("!document.querySelector('#gone').hidden")
        again = RealServer(server.home, data, "--web", url[7:-1]).start()
        try:
            browser.wait_for("document.querySelector('#gone').hidden")
            assert held[:10] in browser.evaluate(text)
        finally:
            assert again.stop() == 0
