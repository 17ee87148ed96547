// Updates a page when the fleet changes. The page is complete without this script. The script requests the content again and
// replaces only what differs, so that the focus, the selection and opened branches stay.
"use strict";
(() => {
  const fragment = { headers: { "X-Machinist-Fragment": "1" }, credentials: "same-origin" };
  const minInterval = 400; // minimum milliseconds between two requests
  const announceInterval = 5000; // minimum milliseconds between two announcements
  const connection = document.getElementById("connection");
  const words = document.getElementById("connection-words");
  const pause = document.getElementById("pause");
  const announcement = document.getElementById("announcement");
  let stream = null, shown = "", paused = false, tag = "", asked = 0, timer = 0, asking = null, again = false;
  let announced = "", announcedAt = 0, announcing = 0;
  const live = () => document.getElementById("live");

  // The clock of the API server is ahead of the clock of this machine by this many milliseconds.
  let ahead = 0;
  const readClock = () => { ahead = Date.parse(live().dataset.now) - Date.now(); };

  const state = (name, text) => {
    if (connection.dataset.state === name) return;
    connection.dataset.state = name;
    words.textContent = text;
  };

  // Follows changes while the page is visible, because a browser has few connections to one server.
  const follow = () => {
    if (stream || paused || document.hidden) return;
    stream = new EventSource("/events");
    stream.addEventListener("fleet", (e) => {
      state("live", "Live");
      if (e.data !== shown) refresh();
    });
    stream.onerror = () => state("lost", "Not connected, trying again");
  };
  const unfollow = () => { if (stream) { stream.close(); stream = null; } };

  // Requests the content. There is only one request at a time, and minInterval between two requests.
  const refresh = () => {
    if (asking) { again = true; return; }
    clearTimeout(timer);
    timer = setTimeout(ask, Math.max(0, asked + minInterval - Date.now()));
  };
  const ask = async () => {
    asked = Date.now();
    asking = new AbortController();
    const from = location.href;
    const request = { ...fragment, signal: asking.signal, headers: { ...fragment.headers } };
    if (tag) request.headers["If-None-Match"] = tag;
    try {
      const answer = await fetch(from, request);
      if (answer.status === 403) { unfollow(); state("lost", "machinist ui was restarted. Open its new link."); return; }
      if (answer.status !== 304 && from === location.href) {
        const text = await answer.text();
        const next = new DOMParser().parseFromString(text, "text/html").getElementById("live");
        if (next && from === location.href) {
          tag = answer.headers.get("ETag") || "";
          replace(next);
        }
      }
    } catch (e) {
      if (e.name !== "AbortError") state("lost", "Not connected, trying again");
    } finally {
      asking = null;
      if (again) { again = false; refresh(); }
    }
  };

  const replace = (next) => {
    shown = next.dataset.version;
    document.title = next.dataset.title;
    merge(live(), next, true);
    readClock();
    updateAges();
    announce(live().dataset.summary);
  };

  // Changes a node so that it equals another node, child by child. Rows and trees are matched by their keys.
  const keyOf = (n) => n.nodeType === 1 ? n.dataset.key || n.id || "" : "";
  const sameNode = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
  const merge = (old, next) => {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (!next.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (old.nodeName === "DETAILS" && name === "open") continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.nodeName === "TEXTAREA") return;
    if (old.nodeName === "INPUT") {
      if (old !== document.activeElement && old.value !== next.getAttribute("value")) old.value = next.getAttribute("value") || "";
      return;
    }
    if (old.nodeName === "TIME" && old.textContent === next.textContent) return;
    const keyed = new Map();
    for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = old.firstChild;
    for (const wanted of [...next.childNodes]) {
      const key = keyOf(wanted);
      let found = key ? keyed.get(key) : at && sameNode(at, wanted) ? at : null;
      if (found && !sameNode(found, wanted)) found = null;
      if (!found) {
        const added = old.insertBefore(document.importNode(wanted, true), at);
        if (added.nodeName === "TR") mark(added);
        continue;
      }
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      const before = found.nodeName === "TR" ? content(found) : "";
      merge(found, wanted);
      if (before && before !== content(found)) mark(found);
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
    if (old.nodeName === "SELECT" && old !== document.activeElement) {
      old.selectedIndex = Math.max(0, [...old.options].findIndex((o) => o.hasAttribute("selected")));
    }
  };

  // Returns the text of a row without ages, which change all the time.
  const content = (row) => {
    let text = "";
    for (const cell of row.cells) for (const n of cell.childNodes) if (n.nodeName !== "TIME") text += n.textContent + "|";
    return text.replace(/for \S+/g, "");
  };
  const mark = (row) => {
    row.classList.remove("changed");
    requestAnimationFrame(() => row.classList.add("changed"));
    setTimeout(() => row.classList.remove("changed"), 2000);
  };

  // Announces changes to users of screen readers.
  const announce = (summary) => {
    if (!summary || summary === announced) return;
    clearTimeout(announcing);
    announcing = setTimeout(() => {
      announced = summary;
      announcedAt = Date.now();
      announcement.textContent = summary;
    }, Math.max(0, announcedAt + announceInterval - Date.now()));
  };

  // Ages are updated between two answers.
  const age = (seconds) => {
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    if (s < 120) return s + "s";
    if (m < 10) return s % 60 ? m + "m" + (s % 60) + "s" : m + "m";
    if (m < 180) return m + "m";
    if (h < 8) return m % 60 ? h + "h" + (m % 60) + "m" : h + "h";
    if (h < 48) return h + "h";
    if (d < 8) return h % 24 ? d + "d" + (h % 24) + "h" : d + "d";
    return d < 730 ? d + "d" : Math.floor(d / 365) + "y";
  };
  const updateAges = () => {
    const now = Date.now() + ahead;
    for (const t of document.querySelectorAll("time[data-ago]")) {
      const passed = (now - Date.parse(t.dateTime)) / 1000;
      const text = passed < -1 ? "in " + age(-passed) : age(passed);
      if (t.textContent !== text) t.textContent = text;
    }
  };

  // Filters are in the URL. Each choice adds an entry to the history, and all typing in one field adds one entry.
  const address = (form) => {
    const chosen = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) chosen.append(name, value);
    return form.getAttribute("action") + (chosen.size ? "?" + chosen : "");
  };
  const navigate = (to, newEntry) => {
    if (to === location.pathname + location.search) return;
    if (newEntry) history.pushState(null, "", to);
    else history.replaceState(null, "", to);
    reload();
  };
  const reload = () => {
    tag = "";
    if (asking) asking.abort();
    asked = 0;
    refresh();
  };
  let typing = 0, typed = false, restoring = false;
  document.addEventListener("input", (e) => {
    const form = e.target.closest("form[data-filters]");
    if (!form || e.target.nodeName === "SELECT") return;
    clearTimeout(typing);
    typing = setTimeout(() => { navigate(address(form), !typed); typed = true; }, 200);
  });
  document.addEventListener("change", (e) => {
    const form = e.target.closest("form[data-filters]");
    if (!form || restoring) return;
    clearTimeout(typing);
    navigate(address(form), e.target.nodeName === "SELECT" || !typed);
    typed = false;
  });
  document.addEventListener("submit", (e) => {
    if (!e.target.matches("form[data-filters]")) return;
    e.preventDefault();
    clearTimeout(typing);
    navigate(address(e.target), !typed);
    typed = false;
  });
  addEventListener("popstate", () => {
    // The URL counts, and not the typed text: leaving the field must not add another entry to the history.
    clearTimeout(typing);
    typed = false;
    restoring = true;
    if (document.activeElement && document.activeElement.closest("form[data-filters]")) document.activeElement.blur();
    restoring = false;
    reload();
  });

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", paused);
    if (paused) { unfollow(); state("paused", "Paused"); } else { state("off", "Connecting"); follow(); refresh(); }
  });
  document.addEventListener("visibilitychange", () => document.hidden ? unfollow() : follow());
  addEventListener("pagehide", unfollow);
  addEventListener("pageshow", (e) => { if (e.persisted) { follow(); refresh(); } });
  document.documentElement.classList.add("scripted");
  shown = live().dataset.version;
  announced = live().dataset.summary;
  readClock();
  setInterval(() => { if (!paused && !document.hidden) updateAges(); }, 1000);
  // A plan is the answer to a form. The page does not follow changes, because requesting its URL again would lose the plan.
  if (location.pathname === "/plan") {
    pause.hidden = true;
    connection.hidden = true;
  } else {
    follow();
  }
})();
