"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const nodes = data.nodes, many = nodes.parent.length;
  const byId = (id) => document.getElementById(id);
  const map = byId("map"), tip = byId("tip"), stage = byId("stage");
  const whole = new Intl.NumberFormat("en"), digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  const SVG = map.namespaceURI;
  const SMALLEST = 1.5, SMALLEST_DOT = 0.8, LEAST_TEXT = 10, MOST_TEXT = 17;

  // Positions in units of the radius of the graph's circle.
  const x = new Float64Array(many), y = new Float64Array(many), r = new Float64Array(many);
  const kids = Array.from({ length: many }, () => []), hue = new Array(many);
  for (let n = 0; n < many; n++) {
    const up = nodes.parent[n], [px, py, pr] = nodes.place[n];
    if (up < 0) { x[n] = 0; y[n] = 0; r[n] = 1; continue; }
    x[n] = x[up] + px * r[up];
    y[n] = y[up] + py * r[up];
    r[n] = pr * r[up];
    hue[n] = up === 0 ? data.colours[kids[0].length % data.colours.length] : hue[up];
    kids[up].push(n);
  }

  let here = 0, found = -1, view = null, running = 0, moving = false;

  const make = (tag, text, parent) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const draw = (tag, attributes, parent) => {
    const made = document.createElementNS(SVG, tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    parent.append(made);
    return made;
  };
  const vertices = (n) => `${whole.format(n)} ${n === 1 ? "vertex" : "vertices"}`;
  const communities = (n) => `${whole.format(n)} ${n === 1 ? "community" : "communities"}`;
  const first = (n) => (nodes.members[n].length ? data.labels[nodes.members[n][0]] : "");

  const levels = (n) =>
    nodes.level[n] === nodes.finest[n] ? `level ${nodes.level[n]}` : `levels ${nodes.finest[n]}–${nodes.level[n]}`;
  const title = (n) => {
    if (n === 0) return "The whole graph";
    if (nodes.merged[n]) return `${communities(nodes.merged[n])}, not drawn`;
    return `Community ${nodes.community[n]} of level ${nodes.level[n]}`;
  };
  const describe = (n) => {
    if (nodes.merged[n]) return `${whole.format(nodes.merged[n])} more communities\n${vertices(nodes.size[n])} together`;
    const lines = [title(n), vertices(nodes.size[n])];
    if (nodes.members[n].length) lines.push(`most central: ${first(n)}`);
    if (kids[n].length) lines.push(`${communities(parts(n))} inside`);
    return lines.join("\n");
  };
  const parts = (n) => kids[n].reduce((sum, child) => sum + (nodes.merged[child] || 1), 0);
  const score = (value) => (data.bound ? "≈ " : "") + digits.format(value);

  // The view: a centre, and pixels per unit.
  const target = (n) => {
    const box = map.getBoundingClientRect();
    const width = Math.max(box.width, 50), height = Math.max(box.height, 50);
    return { x: x[n], y: y[n], k: (0.48 * Math.min(width, height)) / r[n], width, height };
  };
  const seen = (views, cx, cy, radius) =>
    views.some((v) => Math.abs(cx - v.x) - radius < v.width / v.k / 2 && Math.abs(cy - v.y) - radius < v.height / v.k / 2);

  // Browsers draw texts and circles in tiny units badly, so everything is drawn in pixels of the target view.
  const scene = (goal, from) => {
    const views = from ? [goal, from] : [goal], k = goal.k;
    const place = (n) => [(x[n] - goal.x) * k, (y[n] - goal.y) * k, r[n] * k];
    const finest = Math.max(...views.map((v) => v.k));
    const shapes = document.createElementNS(SVG, "g"), texts = document.createElementNS(SVG, "g");
    texts.setAttribute("aria-hidden", "true");
    const visit = (n, parent) => {
      if (r[n] * finest < SMALLEST || !seen(views, x[n], y[n], r[n])) return;
      const [cx, cy, radius] = place(n);
      const group = draw("g", { "data-node": n }, parent);
      if (hue[n]) group.style.setProperty("--hue", hue[n]);
      const kind = n === 0 ? " graph" : nodes.merged[n] ? " rest" : "";
      draw("circle", { class: `group${kind}${n === here ? " here" : ""}`, cx, cy, r: radius }, group);
      const inHere = nodes.parent[n] === here && !nodes.merged[n];
      if (inHere) enable(group, "open", describe(n));
      if (nodes.parent[n] === here) name(texts, n, cx, cy, radius);
      // The contents of subcommunities are faint, so that names over them are readable.
      const inner = nodes.parent[n] === here ? draw("g", { class: "hinted" }, group) : group;
      for (const child of kids[n]) visit(child, inner);
      dots(n, inner, texts, cx, cy, radius, finest / k);
    };
    visit(0, shapes);
    return [shapes, texts];
  };
  const enable = (group, kind, label) => {
    group.classList.add(kind);
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "button");
    group.setAttribute("aria-label", label.replaceAll("\n", ", "));
  };
  const dots = (n, group, texts, cx, cy, radius, closer) => {
    nodes.dots[n].forEach(([dx, dy, dr], at) => {
      if (dr * radius * closer < SMALLEST_DOT) return;
      const member = nodes.members[n][at];
      const dot = draw("g", { class: "member", "data-node": n, "data-member": member, "data-at": at }, group);
      if (n === 0) dot.style.setProperty("--hue", data.colours[0]);
      draw("circle", { class: "dot", cx: cx + dx * radius, cy: cy + dy * radius, r: dr * radius }, dot);
      if (member === found) dot.classList.add("found");
      if (n !== here) return;
      enable(dot, "member", `${data.labels[member]}, ${data.value} ${score(nodes.scores[n][at])}`);
      write(texts, [[data.labels[member]]], cx + dx * radius, cy + dy * radius, Math.max(dr * radius, 26), "name");
    });
  };
  const name = (texts, n, cx, cy, radius) => {
    if (nodes.merged[n]) {
      const more = whole.format(nodes.merged[n]);
      return write(texts, [[`and ${more} more`, `+${more}`]], cx, cy, radius, "name much");
    }
    const lines = nodes.members[n].length ? [[first(n)]] : [];
    if (radius > 34) lines.push([vertices(nodes.size[n]), whole.format(nodes.size[n])]);
    return write(texts, lines, cx, cy, radius, "name");
  };
  // Lines of text in a circle: the longest wording that fits, or the last one, cut; nothing in small circles.
  const write = (texts, lines, cx, cy, radius, kind) => {
    const size = Math.min(MOST_TEXT, Math.max(LEAST_TEXT, radius / 3.5));
    const most = (share) => Math.floor((1.75 * radius) / (0.6 * size * share));
    if (most(1) < 3 || radius < 12) return;
    lines.forEach((wordings, at) => {
      const share = at ? 0.82 : 1, last = wordings[wordings.length - 1], space = most(share);
      const text = draw("text", {
        class: kind, x: cx, y: cy + size * (0.35 + 1.15 * (at - (lines.length - 1) / 2)), "font-size": size * share,
      }, texts);
      text.textContent = wordings.find((words) => words.length <= space) || `${last.slice(0, space - 1)}…`;
    });
  };

  // Drawing again removes the focus: restore it on the same object.
  const focus = (n, member) => {
    const same = map.querySelector(`[tabindex][data-node="${n}"]${member === undefined ? "" : `[data-member="${member}"]`}`);
    if (same) same.focus({ preventScroll: true });
    return same;
  };

  const show = (smooth) => {
    cancelAnimationFrame(running);
    moving = false;
    const goal = target(here), from = smooth ? view : null;
    const layers = scene(goal, from), focused = map.contains(document.activeElement) ? document.activeElement.dataset : null;
    map.replaceChildren(...layers);
    if (focused) focus(focused.node, focused.member);
    map.classList.toggle("whole", here === 0);
    const put = (v) => {
      view = v;
      // The layers are in pixels of the target view.
      const scale = v.k / goal.k;
      const shift = `translate(${v.width / 2} ${v.height / 2}) scale(${scale}) translate(${(goal.x - v.x) * goal.k} ${(goal.y - v.y) * goal.k})`;
      for (const layer of layers) layer.setAttribute("transform", shift);
    };
    if (!from || matchMedia("(prefers-reduced-motion: reduce)").matches) { put(goal); return; }
    moving = true;
    const begun = performance.now(), lasts = 420;
    const step = (now) => {
      const t = Math.min(1, Math.max(0, (now - begun) / lasts)), eased = t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2;
      const k = from.k * (goal.k / from.k) ** eased;
      // The centre moves with the visible width, so that the target stays visible.
      const share = goal.k === from.k ? eased : (1 / from.k - 1 / k) / (1 / from.k - 1 / goal.k);
      put(t === 1 ? goal : { ...goal, k, x: from.x + (goal.x - from.x) * share, y: from.y + (goal.y - from.y) * share });
      if (t < 1) running = requestAnimationFrame(step); else show(false);
    };
    put(from);
    running = requestAnimationFrame(step);
  };

  const link = (cell, text, act) => {
    const made = make("button", text, cell);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  };
  const panel = () => {
    byId("name").textContent = title(here);
    const figures = [vertices(nodes.size[here])];
    if (here) {
      figures.unshift(levels(here));
      figures.push(`weight within ${digits.format(nodes.inside[here])}, to others ${digits.format(nodes.cut[here])}`);
    }
    byId("figures").textContent = figures.join(" · ");
    const undrawn = nodes.undrawn[here];
    byId("note").textContent = undrawn ? `Its ${communities(undrawn)} are not drawn.` : "";
    const central = byId("central").tBodies[0], inner = byId("parts").tBodies[0];
    central.replaceChildren();
    nodes.members[here].forEach((member, at) => {
      const row = make("tr", undefined, central);
      row.classList.toggle("found", member === found);
      make("td", at + 1, row);
      link(make("td", undefined, row), data.labels[member], () => find(member));
      make("td", score(nodes.scores[here][at]), row);
    });
    byId("central").hidden = !nodes.members[here].length;
    inner.replaceChildren();
    for (const child of kids[here]) {
      const row = make("tr", undefined, inner), cell = make("td", undefined, row);
      if (nodes.merged[child]) cell.textContent = `${whole.format(nodes.merged[child])} more, not drawn`;
      else link(cell, first(child), () => go(child));
      make("td", whole.format(nodes.size[child]), row);
      make("td", nodes.merged[child] ? "–" : digits.format(nodes.inside[child]), row);
    }
    byId("parts").hidden = !kids[here].length;
    const trail = byId("trail"), steps = [];
    for (let n = here; n >= 0; n = nodes.parent[n]) steps.unshift(n);
    trail.replaceChildren();
    steps.forEach((n, at) => {
      if (at) make("span", "›", trail).setAttribute("aria-hidden", "true");
      const text = n === 0 ? "Whole graph" : `${first(n)} (level ${nodes.level[n]})`;
      if (n === here) make("span", text, trail).setAttribute("aria-current", "location");
      else link(trail, text, () => go(n));
    });
  };

  const go = (n, member = -1) => {
    const from = here, inMap = map.contains(document.activeElement);
    here = n;
    found = member;
    tip.hidden = true;
    panel();
    show(true);
    // With the keyboard, continue from the previous position.
    if (keyboard && inMap && !map.contains(document.activeElement) && !focus(from)) {
      const next = map.querySelector("[tabindex]");
      if (next) next.focus({ preventScroll: true });
    }
  };
  const find = (member) => go(data.home[member], member);
  const out = () => { if (here) go(nodes.parent[here]); };

  // The subcommunity of the current community that contains a circle; -1 if outside.
  const partOf = (n) => {
    while (n > 0 && nodes.parent[n] !== here) n = nodes.parent[n];
    return n > 0 ? n : -1;
  };
  let keyboard = false;
  addEventListener("pointerdown", () => { keyboard = false; }, true);
  addEventListener("keydown", () => { keyboard = true; }, true);
  const choose = (element) => {
    const mark = element.closest("[data-node]");
    if (!mark) return out();
    const n = Number(mark.dataset.node), member = mark.dataset.member;
    if (member !== undefined && n === here) return find(Number(member));
    if (n === here) return undefined;
    const part = partOf(n);
    if (part < 0) return out();
    return nodes.merged[part] ? undefined : go(part);
  };
  map.addEventListener("click", (event) => choose(event.target));
  map.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(event.target);
    } else if (event.key.startsWith("Arrow")) {
      const all = [...map.querySelectorAll("[tabindex]")], at = all.indexOf(event.target);
      const forward = event.key === "ArrowRight" || event.key === "ArrowDown";
      if (at < 0) return;
      event.preventDefault();
      all[(at + (forward ? 1 : all.length - 1)) % all.length].focus();
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (event.target === wanted && wanted.value) { wanted.value = ""; search(); } else out();
  });

  const hint = (event) => {
    if (moving) return;
    const mark = event.target.closest ? event.target.closest("[data-node]") : null;
    const n = mark ? Number(mark.dataset.node) : -1;
    const part = n > 0 ? partOf(n) : -1;
    let text = "";
    if (mark && mark.dataset.member !== undefined && n === here) {
      const at = Number(mark.dataset.at);
      text = `${data.labels[nodes.members[n][at]]}\n${data.value} ${score(nodes.scores[n][at])}\nrank ${at + 1} of ${vertices(nodes.size[n])}`;
    } else if (part > 0) text = describe(part);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect(), edge = event.clientX === undefined || event.type === "focusin" ? mark.getBoundingClientRect() : null;
    const left = edge ? edge.left + edge.width / 2 : event.clientX + 14, top = edge ? edge.bottom + 6 : event.clientY + 16;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(top, innerHeight - box.height - 4))}px`;
  };
  map.addEventListener("pointermove", hint);
  map.addEventListener("pointerleave", () => { tip.hidden = true; });
  map.addEventListener("focusin", (event) => { if (keyboard) hint(event); });
  map.addEventListener("focusout", () => { tip.hidden = true; });

  const wanted = byId("wanted"), matches = byId("matches"), answer = byId("answer");
  const lower = data.labels.map((label) => label.toLowerCase());
  const search = () => {
    const text = wanted.value.trim().toLowerCase();
    matches.replaceChildren();
    answer.textContent = "";
    if (!text) return [];
    const rank = (label) => (label === text ? 0 : label.startsWith(text) ? 1 : 2);
    const hits = [];
    lower.forEach((label, at) => { if (label.includes(text)) hits.push(at); });
    hits.sort((a, b) => rank(lower[a]) - rank(lower[b]) || a - b);
    for (const member of hits.slice(0, 20)) {
      const item = make("li", undefined, matches);
      link(item, data.labels[member], () => find(member));
      const at = data.home[member];
      make("small", at ? ` in the community of ${first(at)}` : "", item);
    }
    if (hits.length > 20) answer.textContent = `and ${whole.format(hits.length - 20)} more`;
    if (!hits.length) answer.textContent = `No match among the ${whole.format(lower.length)} central members on this page.`;
    return hits;
  };
  wanted.addEventListener("input", search);
  wanted.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const hits = search();
    if (hits.length) find(hits[0]);
  });

  const facts = (list, into) => {
    for (const [term, value] of list) {
      const pair = into.id === "facts" ? make("div", undefined, into) : into;
      make("dt", term, pair);
      make("dd", value, pair);
    }
  };
  facts(data.facts, byId("facts"));
  facts(data.options, byId("options"));
  for (const line of data.left_out) make("li", line, byId("left"));
  byId("value").textContent = data.value;
  byId("legend").textContent = many > 1
    ? "Area of a circle: its vertices, beside its neighbours'. Name: its most central member. Dots: central members, by betweenness beside each other. Click or Enter zooms in, Esc or a click outside zooms out."
    : "This graph has no vertices.";

  panel();
  show(false);
  new ResizeObserver(() => show(false)).observe(stage);
})();
