"use strict";
// Comfort only: without this script everything on the page can be read.
(() => {
  const byId = (id) => document.getElementById(id);

  // Theme: the system's until it is changed here. Nothing is stored: the file may be opened from anywhere.
  const theme = byId("theme");
  const root = document.documentElement;
  const toggleTheme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  };
  theme.hidden = false;
  theme.addEventListener("click", toggleTheme);

  // Sorting: every column of a sortable table; numbers by data-sort or by their text.
  const valueOf = (row, index) => {
    const cell = row.cells[index];
    const raw = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number.parseFloat(raw.replaceAll(",", ""));
    return Number.isNaN(number) ? raw.toLowerCase() : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1; // what was not measured comes last
    if (typeof b === "number") return 1;
    return a < b ? -1 : Number(a > b);
  };
  const sort = (table, heading) => {
    const index = heading.cellIndex;
    const first = heading.classList.contains("number") ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    const order = heading.getAttribute("aria-sort") === first ? second : first;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const body = table.tBodies[0];
    const sign = order === "ascending" ? 1 : -1;
    const keyed = [...body.rows].map((row) => [valueOf(row, index), row]);
    keyed.sort(([a], [b]) => (typeof a === typeof b ? sign * compare(a, b) : compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading));
    }
  }

  // Filter: kernels and host functions by any of their words; folds with a match open.
  const filter = byId("filter");
  if (filter) {
    filter.closest(".tools").hidden = false;
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let matches = 0;
      for (const table of document.querySelectorAll("table.filtered")) {
        let here = 0;
        for (const row of table.tBodies[0].rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
          here += row.hidden ? 0 : 1;
        }
        if (words.length > 0) table.closest("details").open = here > 0;
        matches += here;
      }
      byId("matches").textContent = words.length > 0 ? `${matches} rows` : "";
    });
  }

  // A link into a fold opens it; so does arriving with such a name in the address.
  const reveal = () => {
    const target = location.hash.length > 1 ? byId(decodeURIComponent(location.hash.slice(1))) : null;
    let opened = false;
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      opened ||= !fold.open;
      fold.open = true;
    }
    if (opened) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Perfetto: its UI says PONG to a PING once it can take a trace. Nothing is opened or sent but on a click.
  const PERFETTO = "https://ui.perfetto.dev";
  const decoded = (link) => {
    const text = atob(link.getAttribute("href").split(",", 2)[1]);
    return Uint8Array.from(text, (character) => character.charCodeAt(0)).buffer;
  };
  const openInPerfetto = (button) => {
    const row = button.closest("li");
    const link = row.querySelector("a[download]");
    const say = (text) => { row.querySelector("[role=status]").textContent = text; };
    const perfetto = window.open(PERFETTO); // first of all: a browser allows it only as the click's own doing
    if (!perfetto) return say("The browser kept the new tab closed. Allow it, or save the file and open it there.");
    say("Waiting for Perfetto.");
    const answer = (event) => {
      if (event.source !== perfetto || event.origin !== PERFETTO || event.data !== "PONG") return;
      stop("Handed over.");
      const trace = { buffer: decoded(link), title: button.dataset.title, fileName: link.download };
      perfetto.postMessage({ perfetto: trace }, PERFETTO);
    };
    const asking = setInterval(() => perfetto.postMessage("PING", PERFETTO), 100);
    const givingUp = setTimeout(() => stop("No answer from ui.perfetto.dev. Save the file and open it there."), 30000);
    const stop = (text) => {
      clearInterval(asking);
      clearTimeout(givingUp);
      removeEventListener("message", answer);
      say(text);
    };
    addEventListener("message", answer);
  };
  for (const button of document.querySelectorAll("button.perfetto")) {
    button.hidden = false;
    button.addEventListener("click", () => openInPerfetto(button));
  }
  for (const note of document.querySelectorAll(".scripted")) note.hidden = false;

  // The Profile that the page carries, unpacked and saved; nothing leaves the browser.
  const save = byId("save-profile");
  const own = byId("profile").textContent;
  const saveProfile = async () => {
    const zipped = Uint8Array.from(atob(own), (character) => character.charCodeAt(0));
    const unzipped = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await new Response(unzipped).blob());
    link.download = "report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  if (own && "DecompressionStream" in window) {
    save.hidden = false;
    save.addEventListener("click", saveProfile);
  }

  // A # copies its address. Where there is no clipboard the address bar still shows it.
  for (const link of document.querySelectorAll("a.anchor")) {
    link.addEventListener("click", () => {
      if (navigator.clipboard) navigator.clipboard.writeText(link.href).catch(() => undefined);
    });
  }

  // Keys: none is active while typing.
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (typing && event.key === "Escape") event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "t") toggleTheme();
    if (event.key === "/" && filter) {
      event.preventDefault();
      filter.focus();
    }
  });
})();
