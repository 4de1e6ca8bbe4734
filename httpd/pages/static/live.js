// Refreshes the page's <main> every few seconds, unless somebody types, reads a selection or looks elsewhere.
"use strict";
const every = 4000;
const busy = () => document.hidden || document.activeElement?.matches("input, button, summary") || !getSelection().isCollapsed;

async function refresh() {
  const live = document.querySelector(".live");
  if (!live || busy()) return;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) throw new Error(answer.statusText);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (busy()) return;
    for (const d of document.querySelectorAll("details[id]")) {
      next.querySelector("#" + CSS.escape(d.id))?.toggleAttribute("open", d.open);
    }
    document.querySelector("main").replaceWith(next);
    live.classList.remove("lost");
    live.title = "this page refreshes itself";
  } catch (err) {
    live.classList.add("lost");
    live.title = "the daemon does not answer: " + err.message;
  }
}

setInterval(refresh, every);
