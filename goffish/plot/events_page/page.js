"use strict";
(() => {
  let data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const play = byId("play"), slider = byId("at"), number = byId("number"), status = byId("status"), speed = byId("speed");
  let vertices, edges, labels, buttons, last, now = -1, timer = 0;

  // Find what is drawn and listed.
  const find = () => {
    [vertices, edges, labels] = ["vertices", "edges", "labels"].map((id) => Array.from(byId(id).children));
    buttons = Array.from(byId("events").querySelectorAll("button"));
    last = data.events.length;
    buttons.forEach((button, i) => {
      button.style.borderLeftColor = data.colours[data.events[i].topic];
      button.addEventListener("click", () => { stop(); show(i + 1); });
    });
  };

  // Answers that hold after some events: each event opens one, closes one, or changes the vertices of one.
  const answers = (count) => {
    const held = new Map();
    for (const event of data.events.slice(0, count)) {
      if (event.closes) held.delete(event.key);
      else if (event.opens || held.has(event.key)) held.set(event.key, event);
    }
    return held;
  };

  const show = (at) => {
    now = Math.max(0, Math.min(last, at));
    const event = now ? data.events[now - 1] : null;
    const time = event ? event.time : -Infinity;
    const fills = new Array(vertices.length).fill(data.nothing);
    for (const one of answers(now).values()) for (const vertex of one.vertices) fills[vertex] = data.colours[one.topic];
    const present = new Set();
    data.edges.forEach(([source, target, begin, end], i) => {
      const there = begin <= time && (end === null || time < end);
      if (there) present.add(source).add(target);
      edges[i].classList.toggle("absent", !there);
      edges[i].classList.toggle("matched", there && event !== null && event.edges.includes(i));
    });
    const matched = new Set(event ? event.vertices : []);
    vertices.forEach((vertex, v) => {
      const absent = !present.has(v) && !matched.has(v) && fills[v] === data.nothing;
      vertex.setAttribute("fill", fills[v]);
      vertex.classList.toggle("absent", absent);
      vertex.classList.toggle("matched", matched.has(v));
    });
    labels.forEach((label) => label.classList.toggle("absent", vertices[label.dataset.vertex].classList.contains("absent")));
    buttons.forEach((button, i) => {
      button.classList.toggle("later", i >= now);
      if (i === now - 1) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
    if (now) buttons[now - 1].scrollIntoView({ block: "nearest" });
    slider.value = now;
    number.textContent = now;
    status.textContent = event ? event.text : "before the first event";
    slider.setAttribute("aria-valuetext", status.textContent);
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
    status.setAttribute("aria-live", "polite");
  };
  const start = () => {
    if (now === last) show(0);
    clearInterval(timer);
    timer = setInterval(() => { show(now + 1); if (now === last) stop(); }, Number(speed.value));
    play.textContent = "Pause";
    status.setAttribute("aria-live", "off");
  };
  const toggle = () => (timer ? stop() : start());

  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  speed.addEventListener("change", () => { if (timer) start(); });
  const keys = { ArrowLeft: () => now - 1, ArrowRight: () => now + 1, Home: () => 0, End: () => last };
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === speed) return;
    if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else if (event.key in keys && event.target !== slider) { stop(); show(keys[event.key]()); }
    else return;
    event.preventDefault();
  });

  // A live page shows what its server has as soon as there is more; the slider stays, or follows at the end.
  const update = (found) => {
    const follows = now === last, event = now ? data.events[now - 1] : null;
    data = found.values;
    const stage = new DOMParser().parseFromString(found.stage, "text/html").querySelector("svg");
    byId("stage").replaceWith(document.importNode(stage, true));
    byId("events").replaceChildren(...data.events.map((one) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = one.text;
      item.append(button);
      return item;
    }));
    const circle = byId("shape").content.firstElementChild;
    byId("key").replaceChildren(...found.topics.map((topic, i) => {
      const item = document.createElement("li"), mark = document.importNode(circle, true), name = document.createElement("span");
      mark.firstElementChild.setAttribute("fill", data.colours[i]);
      name.textContent = topic;
      item.append(mark, name);
      return item;
    }));
    byId("about").textContent = found.about;
    find();
    slider.max = byId("last").textContent = last;
    const at = event ? data.events.findIndex((one) => one.text === event.text && one.key === event.key) + 1 : 0;
    show(follows && !timer ? last : at);
  };
  const poll = async (version) => {
    let next = version;
    try {
      const answer = await (await fetch("version")).json();
      if (answer.version !== version) {
        const found = await (await fetch("data")).json();
        update(found);
        next = found.version;
      }
      byId("about").classList.remove("away");
    } catch {
      byId("about").classList.add("away");
    }
    setTimeout(poll, 1000, next);
  };

  find();
  show(last);
  if (data.version !== undefined) poll(data.version);
})();
