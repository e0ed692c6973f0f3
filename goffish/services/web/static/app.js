// Refresh the page periodically and replace the parts that changed.
"use strict";

(() => {
  const main = document.getElementById("main");
  const every = Number(main.dataset.poll || 0);
  const gone = document.getElementById("gone");
  const live = document.getElementById("live");
  const LIMIT_MS = 10000;
  let timer = 0;
  let asking = false;

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.ask;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  const toEnd = (part) => { part.scrollTop = part.scrollHeight; };
  document.querySelectorAll("[data-end]").forEach(toEnd);
  if (!every) return;

  const selecting = (part) => {
    const chosen = window.getSelection();
    return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  };

  // Preserve open details, focus and scroll positions.
  const sources = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part, part.innerHTML]));
  const replace = (old, fresh) => {
    if (sources.get(old) === fresh.innerHTML || selecting(old)) return;
    sources.set(old, fresh.innerHTML);
    const atEnd = old.scrollHeight - old.scrollTop - old.clientHeight < 8;
    const active = old.contains(document.activeElement) ? document.activeElement : null;
    const same = (element) => element.id === active.id && element.getAttribute("href") === active.getAttribute("href")
      && element.tagName === active.tagName && element.textContent === active.textContent;
    const open = [...old.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key);
    const scrolled = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    old.innerHTML = fresh.innerHTML;
    old.querySelectorAll("details[data-key]").forEach((one) => { one.open = open.includes(one.dataset.key); });
    old.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (active) [...old.querySelectorAll("a, button, summary, [tabindex]")].find(same)?.focus({ preventScroll: true });
    if (atEnd && "end" in old.dataset) toEnd(old);
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    document.querySelectorAll("[data-live]").forEach((old) => {
      const part = fresh.getElementById(old.id);
      if (!part) return;
      replace(old, part);
      if ("over" in part.dataset) old.dataset.over = "";
    });
    document.dispatchEvent(new Event("fresh"));
  };

  const over = () => document.querySelector("[data-over]") !== null;

  const look = async () => {
    if (asking) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
      if (answer.redirected) {
        location.reload();
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      show(await answer.text());
      gone.hidden = true;
      live.textContent = over() ? "" : "live";
    } catch {
      gone.hidden = false;
      live.textContent = "";
    } finally {
      asking = false;
    }
    next();
  };

  const next = () => {
    clearTimeout(timer);
    // Do not poll in hidden tabs or for ended jobs.
    if (!document.hidden && !(over() && gone.hidden)) timer = setTimeout(look, every);
  };

  document.addEventListener("visibilitychange", () => { if (!document.hidden && !over()) look(); });
  live.textContent = over() ? "" : "live";
  next();
})();
