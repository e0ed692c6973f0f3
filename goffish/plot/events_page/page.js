"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const play = byId("play"), slider = byId("at"), number = byId("number"), status = byId("status"), speed = byId("speed");
  const vertices = Array.from(byId("vertices").children), edges = Array.from(byId("edges").children);
  const labels = Array.from(byId("labels").children), buttons = Array.from(byId("events").querySelectorAll("button"));
  const last = data.events.length;

  let now = -1, timer = 0;

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
  buttons.forEach((button, i) => {
    button.style.borderLeftColor = data.colours[data.events[i].topic];
    button.addEventListener("click", () => { stop(); show(i + 1); });
  });
  const keys = { ArrowLeft: () => now - 1, ArrowRight: () => now + 1, Home: () => 0, End: () => last };
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === speed) return;
    if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else if (event.key in keys && event.target !== slider) { stop(); show(keys[event.key]()); }
    else return;
    event.preventDefault();
  });
  show(last);
})();
