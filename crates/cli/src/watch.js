"use strict";
// Asks for the page again and replaces what it shows, while whoever reads it stays where they are.
(() => {
  const EVERY = 1500;
  let tag = "";
  let missed = 0;

  const say = (words) => {
    let note = document.getElementById("stale");
    if (!words) return note && note.remove();
    if (!note) {
      note = document.createElement("div");
      note.id = "stale";
      note.setAttribute("role", "status");
      document.body.append(note);
    }
    note.textContent = words;
  };

  // A table is known by the chart or the heading that it belongs to.
  const key = (details) => {
    const figure = details.closest("figure");
    return (figure ? figure.querySelector("h3") : details.querySelector("summary")).textContent;
  };

  const replace = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const [now, next] = [document.querySelector("main"), fresh.querySelector("main")];
    if (!now || !next || now.innerHTML === next.innerHTML) return;
    const open = new Set([...now.querySelectorAll("details[open]")].map(key));
    for (const details of next.querySelectorAll("details")) details.open = open.has(key(details));
    const [x, y] = [window.scrollX, window.scrollY];
    now.replaceWith(document.importNode(next, true));
    document.title = fresh.title;
    window.scrollTo(x, y);
  };

  const look = async () => {
    try {
      const answer = await fetch("/", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      const selecting = !document.getSelection().isCollapsed;
      if (answer.status === 200 && !selecting) {
        replace(await answer.text());
        tag = answer.headers.get("ETag") || "";
      }
      missed = 0;
      say("");
    } catch {
      missed += 1;
      if (missed > 1) say("The run has ended or was stopped. This page no longer changes; the folder has report.html.");
    }
    setTimeout(look, missed > 1 ? 4 * EVERY : EVERY);
  };
  setTimeout(look, EVERY);
})();
