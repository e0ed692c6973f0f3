"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const play = byId("play"), slider = byId("at"), number = byId("number"), status = byId("status"), speed = byId("speed");
  const vertices = Array.from(byId("vertices").children);
  const last = data.timesteps.length - 1;

  // Only what changes from one timestep to the next is stored.
  const frames = [];
  let frame = new Uint32Array(vertices.length);
  for (const [which, what] of data.changes) {
    frame = frame.slice();
    which.forEach((vertex, i) => { frame[vertex] = what[i]; });
    frames.push(frame);
  }

  let now = 0, timer = 0;
  const shown = new Int32Array(vertices.length).fill(-1);

  const show = (at) => {
    now = Math.max(0, Math.min(last, at));
    const states = frames[now];
    for (let v = 0; v < vertices.length; v++) {
      if (shown[v] === states[v]) continue;
      shown[v] = states[v];
      const [text, colour, shape] = data.states[states[v]];
      vertices[v].setAttribute("fill", colour);
      vertices[v].setAttribute("d", data.shapes[shape]);
      vertices[v].firstElementChild.textContent = `${data.labels[v]}: ${text}`;
    }
    slider.value = now;
    slider.setAttribute("aria-valuetext", `timestep ${data.timesteps[now]}`);
    number.textContent = data.timesteps[now];
    status.textContent = data.status[now];
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
    if (event.key === " " && event.target !== play) toggle();
    else if (event.key in keys && event.target !== slider) { stop(); show(keys[event.key]()); }
    else return;
    event.preventDefault();
  });
  show(0);
})();
