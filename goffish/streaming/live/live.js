"use strict";
const svg = document.getElementById("graph"), state = document.getElementById("state");

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= unit) { const scale = name === "k" ? 1e3 : unit; return (value / scale).toPrecision(3) + name; }
  return size && size < 10 ? String(+value.toPrecision(2)) : Math.round(value).toLocaleString("en");
}
const seconds = (value) => value === null ? "–" : value < 1 ? number(value * 1e3) + " ms" : number(value) + " s";
const percent = (value) => Math.round(100 * value) + " %";

/* 0: calm, 1: busy or with a queue, 2: saturated, or with more in the queue than is processed in 5 seconds. */
function pressure(one) {
  const waits = one.queue / Math.max(one.recent_rate, 1);
  return one.load > 0.8 || waits > 5 ? 2 : one.load > 0.5 || waits > 0.5 ? 1 : 0;
}
function level(node, p) { for (const n of [0, 1, 2]) node.classList.toggle("p" + n, n === p); }
function part(group, name) { return group.querySelector("." + name); }

function draw(metrics) {
  metrics.operators.forEach((one, at) => {
    const box = document.getElementById("o" + at), wide = +part(box, "scale").getAttribute("width");
    level(box, pressure(one));
    const kind = one.kind + (one.alternate === null ? "" : " · " + one.alternate);
    part(box, "kind").textContent = kind.length > 20 ? kind.slice(0, 19) + "…" : kind;
    part(box, "rate").textContent = number(one.recent_rate) + "/s · busy " + percent(one.load);
    part(box, "queue").textContent = one.queue ? number(one.queue) + " wait" : "";
    part(box, "load").setAttribute("width", wide * one.load);
  });
  metrics.channels.forEach((one, at) => {
    const channel = document.getElementById("c" + at), rate = one.recent_rate;
    document.getElementById("r" + at).textContent = number(rate) + "/s";
    channel.querySelector("path").style.strokeWidth = 1.2 + Math.log10(1 + rate) * 0.8;
    channel.classList.toggle("none", rate === 0);
  });
}

function fill(id, header, rows) {
  const table = document.getElementById(id);
  table.replaceChildren();
  const line = (cells, kind, level) => {
    const row = document.createElement("tr");
    if (level !== undefined) row.className = "p" + level;
    cells.forEach((cell, at) => {
      const node = document.createElement(kind), [name, text] = header[at];
      node.textContent = cell;
      node.className = text || "";
      row.append(node);
    });
    table.append(row);
  };
  line(header.map(([name]) => name), "th");
  for (const [cells, level] of rows) line(cells, "td", level);
}

function tables(metrics) {
  const t = "t";
  fill("operators",
    [["operator", t], ["kind", t], ["alternate", t], ["received"], ["sent"], ["records/s"], ["busy", "load"], ["queue"],
     ["late"], ["errors"]],
    metrics.operators.map((one) => [[one.operator, one.kind, one.alternate ?? "", one.received.toLocaleString("en"),
      one.sent.toLocaleString("en"), number(one.recent_rate), percent(one.load), number(one.queue), number(one.late),
      number(one.errors)], pressure(one)]));
  fill("latency", [["sink", t], ["records"], ["median"], ["95 %"], ["99 %"], ["greatest"], ["99 % since the start"]],
    metrics.operators.filter((one) => one.latency !== null).map((one) => {
      const last = one.recent_latency;
      return [[one.operator, number(last.count), seconds(last.p50), seconds(last.p95), seconds(last.p99),
               seconds(last.max), seconds(one.latency.p99)]];
    }));
  fill("workers",
    [["worker", t], ["process"], ["queued"], ["unsent"], ["blocked"], ["checkpoint"], ["age"]],
    metrics.workers.map((one) => [[one.worker, one.pid, number(one.queued), number(one.unsent_bytes) + " B",
      one.blocked ? "yes" : "no", one.checkpoint === null ? "–" : one.checkpoint.toLocaleString("en"),
      seconds(one.checkpoint_age)], one.blocked ? 2 : undefined]));
  const totals = document.getElementById("totals");
  totals.replaceChildren();
  for (const [name, value] of [["records/s", number(metrics.recent_rate)], ["records", metrics.records.toLocaleString("en")],
    ["running", seconds(metrics.seconds)], ["workers", metrics.workers.length], ["checkpoint", metrics.checkpoint]]) {
    if (value === null) continue;
    const pair = document.createElement("div"), key = document.createElement("dt"), text = document.createElement("dd");
    key.textContent = name;
    text.textContent = value;
    pair.append(key, text);
    totals.append(pair);
  }
}

/* As wide as it is drawn, narrower if the window is, but still readable: then it scrolls. */
function fit() {
  const wide = +svg.dataset.width, room = svg.parentNode.clientWidth - 12;
  svg.setAttribute("width", Math.max(Math.min(wide * 1.25, room), wide * 0.62));
}

async function update() {
  try {
    const answer = await fetch("/status", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const metrics = await answer.json();
    draw(metrics);
    tables(metrics);
    state.textContent = metrics.stopped + " · process " + metrics.pid;
    state.className = "on";
    document.body.classList.remove("stale");
  } catch (error) {
    state.textContent = "The flow has ended or does not answer.";
    state.className = "off";
    document.body.classList.add("stale");
  }
  setTimeout(update, 1000);
}
addEventListener("resize", fit);
fit();
update();
