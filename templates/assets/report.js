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

  // The run whose details are shown. Without this script, and in print, all of them are.
  const select = byId("run");
  const ofRun = [...document.querySelectorAll(".of-run")];
  const choose = (run) => {
    root.dataset.run = run;
    for (const part of ofRun) part.classList.toggle("chosen", part.dataset.run === run);
    if (select) select.value = run;
    dispatchEvent(new Event("resize")); // drawings that had no width
  };
  select?.addEventListener("change", () => {
    const kept = document.elementFromPoint(innerWidth / 2, innerHeight / 3)?.closest("main section");
    const top = kept?.getBoundingClientRect().top;
    choose(select.value);
    if (kept) scrollBy({ top: kept.getBoundingClientRect().top - top, behavior: "instant" });
  });

  // What holds an element is opened: its folds, and the run that it is about.
  const open = (element) => {
    const run = element.closest(".of-run")?.dataset.run;
    if (run) choose(run);
    for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  };
  const show = (element) => {
    open(element);
    for (const before of document.querySelectorAll(".found")) before.classList.remove("found");
    element.classList.add("found");
    element.tabIndex = -1;
    element.focus({ preventScroll: true });
    element.scrollIntoView({ block: "center" });
  };

  // Search: findings, kernels, functions, runs and every other row by any of their words; a hit is a click away.
  const filter = byId("filter");
  const hits = byId("hits");
  const MOST_HITS = 40;
  const runName = (run) => select?.querySelector(`option[value="${run}"]`)?.textContent ?? "";
  const rowKind = (table) => {
    if (table.closest("#kernels ~ *")) return "kernel";
    if (table.closest("#host ~ *, #flame ~ *")) return "function";
    return table.closest("section")?.querySelector("h2")?.firstChild.data.trim().toLowerCase() ?? "row";
  };
  let searched = null; // made when first used
  const everything = () => {
    searched ??= [
      ...[...document.querySelectorAll("#findings-list li[id]")].map((item) => {
        const head = item.closest("article").querySelector(".finding-head").textContent;
        const name = item.querySelector(".message").firstChild.parentElement.textContent.replace(/\s*Copy#?\s*$/, "");
        return { element: item, kind: "finding", name, text: head + item.textContent };
      }),
      ...[...document.querySelectorAll("main tbody tr")].map((row) => {
        const name = (row.querySelector("th") ?? row.cells[0]).firstChild?.textContent ?? "";
        return { element: row, kind: rowKind(row.closest("table")), name, text: row.textContent };
      }),
    ].map((item) => {
      const run = runName(item.element.closest(".of-run")?.dataset.run);
      return { ...item, run, text: `${item.text} ${run}`.toLowerCase() };
    });
    return searched;
  };
  const search = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const here = words.length > 0 ? everything().filter((item) => words.every((word) => item.text.includes(word))) : [];
    const tally = new Map();
    for (const { kind } of here) tally.set(kind, (tally.get(kind) ?? 0) + 1);
    const counts = [...tally].map(([kind, n]) => `${n} ${kind}${n === 1 || kind.endsWith("s") ? "" : "s"}`);
    byId("matches").textContent = words.length > 0 ? counts.join(", ") || "no hit" : "";
    hits.hidden = here.length === 0;
    hits.replaceChildren(...here.slice(0, MOST_HITS).map((item) => {
      const entry = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = [item.kind, item.name.trim().slice(0, 160), item.run].filter(Boolean).join(" \u00b7 ");
      button.addEventListener("click", () => {
        hits.hidden = true;
        show(item.element);
      });
      entry.append(button);
      return entry;
    }));
  };
  filter.addEventListener("input", search);
  filter.addEventListener("focus", search);
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Enter") hits.querySelector("button")?.click();
    else if (event.key === "ArrowDown") hits.querySelector("button")?.focus();
  });
  addEventListener("click", (event) => {
    if (!event.target.closest("nav")) hits.hidden = true;
  });

  // The chapter that is being read is marked in the navigation.
  const links = [...document.querySelectorAll("nav .sections a")];
  const chapters = [...document.querySelectorAll(".chapter")];
  let marking = 0;
  const mark = () => {
    marking = 0;
    const line = Math.min(180, innerHeight / 3);
    const at = chapters.findLastIndex((chapter) => chapter.getBoundingClientRect().top <= line);
    const last = innerHeight + scrollY >= document.documentElement.scrollHeight - 2 ? chapters.length - 1 : at;
    links.forEach((link, index) => {
      if (index === last) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  };
  addEventListener("scroll", () => { marking ||= requestAnimationFrame(mark); }, { passive: true });

  // Findings: j and k walk through those that are shown, folded ones too.
  const findingNow = () => document.activeElement?.closest("#findings-list li");
  const walk = (by) => {
    const shown = [...document.querySelectorAll("#findings-list li")].filter((item) => !item.hidden);
    if (shown.length === 0) return;
    const at = shown.indexOf(findingNow());
    const next = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(Math.max(at + by, 0), shown.length - 1);
    open(shown[next]);
    shown[next].tabIndex = -1;
    shown[next].focus();
  };
  const order = byId("order");
  const byPlace = (a, b) => (a < b ? -1 : Number(a > b));
  const ORDERS = {
    given: (a, b) => a.given - b.given,
    cost: (a, b) => b.cost - a.cost || a.given - b.given,
    place: (a, b) => byPlace(a.place, b.place) || a.given - b.given,
  };
  const keyOf = (element, given) => {
    const place = element.querySelector(".where")?.textContent ?? "\uffff";
    const line = place.replace(/:(\d+)/, (found, number) => `:${number.padStart(7, "0")}`);
    return { element, given, cost: Number(element.dataset.cost ?? -1), place: line };
  };
  const lists = [...document.querySelectorAll("#findings-list, #findings-list ul.messages")].map((list) => [
    list,
    [...list.children].map(keyOf),
  ]);
  order?.addEventListener("change", () => {
    for (const [list, keys] of lists) list.append(...keys.toSorted(ORDERS[order.value]).map((key) => key.element));
  });

  // Copies: what is shown, as Markdown in which nothing is markup but ours. Links are no part of it.
  const words = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.matches("a, button.copy, svg")) return "";
    const inner = [...node.childNodes].map(words).join("");
    return node.matches("code, dd, p") ? ` ${inner}` : inner;
  };
  // A backslash does not keep GitHub from mentioning somebody; an empty comment between does.
  const inert = (text) => text.replace(/\s+/g, " ")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
    .replace(/[\\\x60*_[\]{}|~$]/g, "\\$&").replace(/(?<!\w)@(?=\w)/g, "@<!-- -->");
  const atStart = (text) => text.trim().replace(/^[#+=:-]|(?<=^\d+)[.)](?=\s|$)/, "\\$&");
  const escaped = (text) => atStart(inert(text));
  const textOf = (element) => (element ? escaped(words(element)) : "");
  const allOf = (selector, within = document) => [...within.querySelectorAll(selector)].map(textOf);
  const paragraphs = (...parts) => `${parts.filter(Boolean).join("\n\n")}\n`;
  const listed = (texts) => texts.map((text) => `- ${text}`).join("\n");
  // A finding: what is code in it is a code span, and its place leads to the line at the commit.
  const CODE = new RegExp([
    "(?<![\\w/.])[\\w./-]*\\w\\.py(?::\\d+)?\\b", "\\.?\\b[A-Za-z_][\\w.]*\\([^()\\s\\x60]*\\)",
    "\\b[A-Za-z_]\\w*(?:\\.\\w+)+(?:-\\w+)*", "\\b[A-Za-z]\\w*_\\w+\\b",
  ].join("|"), "g");
  const span = (text) => (/^[^\x60<>&@#\n]+$/.test(text.trim()) ? `\x60${text.trim()}\x60` : escaped(text));
  const prose = (element) => {
    const text = words(element);
    const parts = [];
    let done = 0;
    for (const found of text.matchAll(CODE)) {
      parts.push(inert(text.slice(done, found.index)), span(found[0]));
      done = found.index + found[0].length;
    }
    return atStart([...parts, inert(text.slice(done))].join(""));
  };
  const placeText = (place) => {
    const where = place.querySelector(":scope > .where")?.textContent ?? "";
    const [, file, line, inside] = /^(.*?):(\d+)(?: (.*))?$/.exec(where) ?? [];
    const { blob, commit } = byId("findings-list").dataset;
    const at = file && `${file}:${line}`;
    const linked = blob && /^[\w][\w./-]*$/.test(file ?? "") ? `[${span(at)}](${blob}${file}#L${line})` : at && span(at);
    const code = place.querySelector(":scope > code")?.textContent;
    const parts = [
      linked ?? (where && escaped(where)), inside && `in ${span(inside)}`, at && !blob && commit && `at ${span(commit)}`,
    ];
    const rest = [...place.querySelectorAll(":scope > .detail")].map(textOf);
    return [parts.filter(Boolean).join(" "), code && span(code), ...rest].filter(Boolean).join(", ");
  };
  const findingText = (item) => {
    const article = item.closest("article");
    const fix = [...item.querySelectorAll(":scope > .detail > code")].map((code) => span(code.textContent));
    const rule = article.querySelector(".finding-head strong").textContent;
    const level = textOf(article.querySelector(".finding-head .level"));
    return paragraphs(
      `**${level}** ${span(rule)} ${prose(item.querySelector(".message"))}`,
      ...[...item.querySelectorAll(":scope > .place")].map(placeText),
      ...[...item.querySelectorAll(":scope > .wrong, :scope > .detail")].filter((e) => !e.querySelector("code")).map(prose),
      fix.length > 0 ? `**Fix:** ${fix.join(", ")}` : [...article.querySelectorAll(".remedy")].map(prose).join(" "),
    );
  };
  const resultsText = (table) => {
    const cell = (one) => {
      const [figure, ...details] = [...one.childNodes].map((node) => escaped(words(node))).filter(Boolean);
      return one.tagName === "TH" ? textOf(one) : `${figure ?? ""}${details.length > 0 ? ` (${details.join(", ")})` : ""}`;
    };
    const [head, ...rows] = [...table.rows].map((row) => [...row.cells].map(cell));
    return [head, head.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");
  };
  const verdictText = () => {
    const results = document.querySelector(".results");
    return paragraphs(
      `**${textOf(document.querySelector("h1"))}: ${allOf(".verdict .status")[0]}.** ${allOf(".verdict h2")[0]}`,
      listed([...allOf(".verdict .lead-line"), ...allOf(".verdict .trust"), ...allOf(".verdict li")]),
      listed([...document.querySelectorAll(".tiles li")].map((tile) => {
        const [label, value, below] = [...tile.children].map((part) => escaped(part.textContent));
        return `${label}: ${value} (${below})`;
      })),
      results && resultsText(results),
      allOf(".meta li").join(", "),
    );
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      byId("said").textContent = "Copied.";
    } catch {
      byId("markdown").value = text;
      byId("by-hand").showModal();
      byId("markdown").select();
    }
  };
  for (const button of document.querySelectorAll("button.copy")) {
    const item = button.closest("li");
    button.addEventListener("click", () => copy(item ? findingText(item) : verdictText()));
  }
  for (const button of document.querySelectorAll("button.close")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  const keys = byId("keys");
  byId("help").addEventListener("click", () => keys.showModal());

  // A link into a fold opens it, and one into a run's details chooses that run; so does arriving with such an address.
  const reveal = () => {
    const target = byId(location.hash.slice(1)); // our names need no escapes
    if (!target) return;
    const run = /(?:^|-)(run-\d+)$/.exec(target.id)?.[1];
    if (run && select) choose(run);
    open(target);
    target.scrollIntoView({ block: target.matches("#findings-list li") ? "center" : "start" });
  };
  addEventListener("hashchange", reveal);
  if (select) choose(select.value);
  reveal();
  mark();

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

  // Flame graphs: arrows walk from frame to frame, Enter or a click shows one over the whole width, Escape all again.
  const flame = (chart) => {
    const said = chart.nextElementSibling;
    const title = (box) => box.element.querySelector("title").textContent;
    const name = (box) => title(box).split("\n", 1)[0].replace(/^(<built-in \w+ |nn\.Module: )(?=[^ >])/, "");
    const boxes = [...chart.children].map((element) => ({
      element,
      x: Number.parseFloat(element.getAttribute("x")),
      width: Number.parseFloat(element.getAttribute("width")),
      row: Number(element.getAttribute("y")) / 24,
      children: [],
    }));
    const last = []; // of each row
    for (const box of boxes) {
      box.above = last[box.row - 1];
      box.above?.children.push(box);
      last[box.row] = box;
      box.text = box.element.querySelector("text");
      if (!box.text) {
        box.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
        box.text.textContent = name(box);
        box.element.append(box.text);
      }
      const [, file] = /\n[^;]*?([^/;, ]+:\d+); /.exec(title(box)) ?? [];
      if (file && !box.text.querySelector("tspan")) {
        const place = document.createElementNS("http://www.w3.org/2000/svg", "tspan");
        place.textContent = ` ${file}`;
        box.text.append(place);
      }
      box.element.setAttribute("role", "treeitem");
      box.element.setAttribute("aria-level", box.row + 1);
      box.element.setAttribute("aria-label", title(box).replace("\n", ", "));
      box.element.setAttribute("tabindex", "-1");
    }
    const within = (box, top) => {
      for (let here = box; here; here = here.above) if (here === top) return true;
      return false;
    };
    // Above the graph: a search, the way from the root to the frame that is shown, and back to all of it.
    const make = (tag, more) => Object.assign(document.createElement(tag), more);
    const find = make("input", { type: "search", placeholder: "Find a frame", autocomplete: "off", spellcheck: false });
    find.setAttribute("aria-label", "Find in this graph: function or file");
    const found = make("span", { className: "note" });
    found.setAttribute("role", "status");
    const reset = make("button", { type: "button", textContent: "Reset" });
    const crumbs = make("span", { className: "crumbs" });
    const tools = make("div", { className: "tools" });
    tools.append(find, reset, found, crumbs);
    chart.before(tools);
    const search = () => {
      const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      const hit = (box) => words.length > 0 && words.every((word) => title(box).split("; ")[0].toLowerCase().includes(word));
      for (const box of boxes) {
        box.hit = hit(box);
        box.inHit = box.above ? box.above.hit || box.above.inHit : false;
        box.element.classList.toggle("hit", box.hit);
      }
      const hits = boxes.filter((box) => box.hit);
      const share = hits.filter((box) => !box.inHit).reduce((sum, box) => sum + box.width, 0) / boxes[0].width;
      chart.classList.toggle("searched", words.length > 0);
      found.textContent = words.length === 0 ? ""
        : `${hits.length} frame${hits.length === 1 ? "" : "s"}, ${(100 * share).toFixed(1)} % of the time`;
    };
    let shown = boxes[0];
    const show = (top) => {
      shown = top;
      const way = [];
      for (let box = top; top !== boxes[0] && box; box = box.above) way.unshift(box);
      crumbs.replaceChildren(...way.flatMap((box, at) => {
        const step = make("button", { type: "button", textContent: name(box).slice(0, 40) });
        if (box === top) step.setAttribute("aria-current", "true");
        step.addEventListener("click", () => { select(box, false); show(box); });
        return at > 0 ? [" \u203a ", step] : [step];
      }));
      for (const box of boxes) {
        const outside = !within(box, top);
        const around = outside && within(top, box);
        const width = around ? 100 : (100 * box.width) / top.width;
        box.element.toggleAttribute("hidden", outside && !around);
        box.element.setAttribute("x", around ? "0%" : `${(100 * (box.x - top.x)) / top.width}%`);
        box.element.setAttribute("width", `${width}%`);
        box.text.toggleAttribute("hidden", (chart.clientWidth * width) / 100 < 32);
      }
    };
    let now = boxes[0];
    const select = (box, focus) => {
      now.element.setAttribute("tabindex", "-1");
      now = box;
      box.element.setAttribute("tabindex", "0");
      if (focus) box.element.focus();
    };
    const say = (box) => {
      said.hidden = false;
      said.textContent = title(box).replace("\n", ": ");
    };
    const visible = (box) => box && !box.element.hasAttribute("hidden");
    const beside = (by) => {
      const row = boxes.filter((box) => box.row === now.row && visible(box));
      return row[row.indexOf(now) + by];
    };
    const MOVES = {
      ArrowUp: () => now.above,
      ArrowDown: () => now.children.find(visible),
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      Home: () => shown,
    };
    chart.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") show(now);
      else if (event.key === "Escape") show(boxes[0]);
      else if (Object.hasOwn(MOVES, event.key)) {
        const next = MOVES[event.key]();
        if (next) select(next, true);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    find.addEventListener("input", search);
    find.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      if (event.key === "Escape") find.value = "";
      search();
      const first = boxes.filter((box) => box.hit).sort((a, b) => b.width - a.width)[0];
      if (event.key === "Enter" && first) {
        select(first, true);
        show(first);
      }
      event.preventDefault();
      event.stopPropagation();
    });
    reset.addEventListener("click", () => {
      find.value = "";
      search();
      select(boxes[0], false);
      show(boxes[0]);
    });
    const boxOf = (event) => boxes.find((box) => box.element.contains(event.target));
    chart.addEventListener("click", (event) => {
      const box = boxOf(event);
      if (!box) return;
      select(box, true);
      show(box);
    });
    chart.addEventListener("focusin", (event) => say(boxOf(event) ?? now));
    chart.addEventListener("mouseover", (event) => {
      const box = boxOf(event);
      if (box) say(box);
    });
    chart.setAttribute("role", "tree");
    select(boxes[0], false);
    chart.closest("details")?.addEventListener("toggle", () => show(shown)); // one that was closed had no width
    addEventListener("resize", () => show(shown));
    show(shown);
  };
  for (const chart of document.querySelectorAll("svg.flame")) flame(chart);

  // Timelines: the events of a step on a canvas. Without this the drawing below it shows the same.
  const unzipped = (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  };
  const numbers = (letters) => [...letters].map((letter) => {
    const code = letter.codePointAt(0);
    return code - (code > 0xdfff ? 0x85d : 0x5d);
  });
  const ROW = 38;
  const timeline = (place, [unit, whole, step, names, kinds, coded]) => {
    const svg = place.querySelector("svg");
    const calls = [];
    const moments = new Set();
    const lanes = coded.map(([label, busy, role, ...columns], row) => {
      const links = columns.pop();
      const [name, kind, gaps, lengths] = columns.map(numbers);
      const idle = role === 3; // its times are places among the moments
      const sorted = idle && [...new Set([...moments, ...links])].sort((a, b) => a - b);
      let at = 0;
      let link = 0;
      return { label, busy, events: name.map((n, i) => {
        const from = at + gaps[i];
        at = from + lengths[i];
        const [start, end] = idle ? [sorted[from], sorted[at]] : [from, at];
        const event = { row, i, start, end, name: names[n], kind: kinds[kind[i]], made: [] };
        if (role === 1) calls.push(event);
        if (role === 1 || role === 2) moments.add(start);
        if (role === 2) moments.add(end);
        if (!idle && links.length > 0) event.call = link += links[i];
        return event;
      }) };
    });
    for (const { events } of lanes) for (const event of events) {
      event.by = calls[event.call];
      event.by?.made.push(event);
    }

    const canvas = document.createElement("canvas");
    const said = Object.assign(document.createElement("p"), { className: "note" });
    said.setAttribute("role", "status");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", svg.getAttribute("aria-label"));
    const tools = Object.assign(document.createElement("div"), { className: "tools" });
    const height = ROW * lanes.length + 20;
    canvas.style.height = `${height}px`; // through the object: the policy forbids attributes only
    const pen = canvas.getContext("2d");
    let from = 0;
    let to = whole;
    let now = null; // chosen
    let over = null; // under the pointer
    const x = (time) => ((time - from) / (to - from)) * canvas.clientWidth;
    const timeAt = (event) => from + ((event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth) * (to - from);

    // Colours are those of the style sheet, asked of elements of the drawing.
    const probes = new Map();
    const colour = (kind, property = "fill") => {
      if (!probes.has(kind)) {
        const probe = document.createElementNS("http://www.w3.org/2000/svg", "path");
        probe.setAttribute("class", kind);
        svg.append(probe);
        probes.set(kind, getComputedStyle(probe));
      }
      return probes.get(kind)[property];
    };
    const micros = (time) => {
      const us = (time * unit) / 1000;
      return us >= 1000 ? `${Number((us / 1000).toPrecision(4))} ms` : `${Number(us.toPrecision(3))} \u00b5s`;
    };
    const first = (events) => { // that ends in view
      let low = 0;
      for (let high = events.length; low < high;) {
        const middle = (low + high) >> 1;
        if (events[middle].end < from) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    const inView = ({ events }) => {
      const low = first(events);
      let high = low;
      while (high < events.length && events[high].start <= to) high += 1;
      return events.slice(low, high);
    };
    const top = (event) => event.row * ROW + 33 - event.kind[1];
    const draw = () => {
      const width = canvas.clientWidth;
      if (!width) return;
      const dense = devicePixelRatio || 1;
      canvas.width = width * dense;
      canvas.height = height * dense;
      pen.scale(dense, dense);
      pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
      const [ink, quiet, line] = [colour("label-ink"), colour("quiet"), colour("tick", "stroke")];
      // The axis: about eight steps of 1, 2 or 5, counted from the step's start.
      const rough = ((to - from) * Math.min(1, 130 / width));
      const power = 10 ** Math.floor(Math.log10(rough));
      const each = [1, 2, 5, 10].find((digit) => digit * power >= rough) * power;
      for (let time = Math.ceil(from / each) * each; time <= to; time += each) {
        pen.fillStyle = line;
        pen.fillRect(x(time), 0, 1, height - 18);
        pen.fillStyle = quiet;
        const text = micros(time);
        const half = pen.measureText(text).width / 2;
        pen.fillText(text, Math.min(Math.max(x(time) - half, 0), width - 2 * half), height - 5);
      }
      const links = [];
      lanes.forEach((lane, row) => {
        pen.fillStyle = line;
        pen.fillRect(0, row * ROW + 33, width, 1);
        for (const event of inView(lane)) {
          const left = Math.max(x(event.start), -2);
          const wide = Math.max(Math.min(x(event.end), width + 2) - left, 0.6);
          pen.fillStyle = colour(event.kind[0]);
          pen.fillRect(left, top(event), wide > 4 ? wide - 0.5 : wide, event.kind[1]);
          if (wide > 36 && event.kind[1] > 12) {
            pen.save();
            pen.beginPath();
            pen.rect(left, top(event), wide - 3, 16);
            pen.clip();
            pen.fillStyle = colour("on");
            pen.fillText(event.name || event.kind[2], Math.max(left, 0) + 3, row * ROW + 30);
            pen.restore();
          }
          if (event.by) links.push([event.by, event]);
        }
        pen.fillStyle = ink;
        pen.fillText(lane.label, 0, row * ROW + 12);
        pen.fillStyle = quiet;
        pen.fillText(lane.busy, width - pen.measureText(lane.busy).width, row * ROW + 12);
      });
      if (step < whole) {
        pen.fillStyle = ink;
        for (let y = 0; y < height - 18; y += 6) pen.fillRect(x(step), y, 1, 3);
      }
      // Arrows: of the chosen event, of the one under the pointer, and all where there are few.
      const arrow = ([call, event], strong) => {
        const [x1, x2] = [x(call.start), x(event.start)];
        const [y1, y2] = [call.row * ROW + 33, top(event)];
        pen.globalAlpha = strong ? 1 : 0.35;
        pen.strokeStyle = pen.fillStyle = strong ? colour("hit", "stroke") : quiet;
        pen.lineWidth = strong ? 1.5 : 1;
        pen.beginPath();
        pen.moveTo(x1, y1);
        pen.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2 - 4);
        pen.stroke();
        pen.beginPath();
        pen.moveTo(x2, y2);
        pen.lineTo(x2 - 3, y2 - 6);
        pen.lineTo(x2 + 3, y2 - 6);
        pen.fill();
        pen.globalAlpha = 1;
      };
      if (links.length <= 24) links.forEach((link) => arrow(link, false));
      for (const event of new Set([over, now])) {
        if (!event) continue;
        if (event.by) arrow([event.by, event], true);
        event.made.slice(0, 300).forEach((made) => arrow([event, made], true));
        pen.strokeStyle = colour("hit", "stroke");
        pen.lineWidth = 2;
        pen.strokeRect(x(event.start) - 1, top(event) - 1, Math.max(x(event.end) - x(event.start), 2) + 2, event.kind[1] + 2);
      }
    };
    let asked = 0;
    const redraw = () => { asked ||= requestAnimationFrame(() => { asked = 0; draw(); }); };

    const show = (low, high) => {
      const length = Math.min(Math.max(high - low, 20), whole);
      from = Math.min(Math.max(low, 0), whole - length);
      to = from + length;
      redraw();
    };
    const zoom = (by, around = now && now.end > from && now.start < to ? (now.start + now.end) / 2 : (from + to) / 2) => {
      show(around - (around - from) * by, around + (to - around) * by);
    };
    const pan = (share) => show(from + share * (to - from), to + share * (to - from));
    const words = (event) => {
      const { name, kind, start, end, by, made } = event;
      const idle = kind[0].startsWith("t-idle");
      const what = idle ? `${kind[2]}${name ? `, until ${name}` : ""}` : `${name} (${kind[2]})`;
      const launched = by ? `; launched by ${by.name}, ${micros(start - by.start)} before` : "";
      const more = made.length > 1 ? ` and ${made.length - 1} more` : "";
      const starts = made.length > 0 ? `; launched ${made[0].name}${more}, ${micros(made[0].start - start)} later` : "";
      return `${what}: ${micros(end - start)}, from ${micros(start)}${launched}${starts}`;
    };
    const choose = (event) => {
      now = event;
      said.textContent = event ? words(event) : "";
      if (event && (event.end < from || event.start > to)) {
        const middle = (event.start + event.end) / 2;
        show(middle - (to - from) / 2, middle + (to - from) / 2);
      }
      redraw();
    };
    const fit = (event) => {
      const around = 2 * Math.max(event.end - event.start, 20);
      show(event.start - around, event.end + around);
    };
    const all = () => { choose(null); show(0, whole); };
    const under = (pointer) => {
      const lane = lanes[Math.floor((pointer.clientY - canvas.getBoundingClientRect().top) / ROW)];
      const time = timeAt(pointer);
      const reach = (3 * (to - from)) / canvas.clientWidth; // three pixels
      const far = (event) => Math.max(event.start - time, time - event.end, 0);
      const near = lane ? inView(lane).filter((event) => far(event) <= reach) : [];
      return near.reduce((best, event) => (!best || far(event) < far(best) ? event : best), null);
    };
    // From event to event: along the lane, and into the next lane at the same time.
    const beside = (by) => lanes[now.row].events[now.i + by];
    const across = (by) => {
      const middle = now ? (now.start + now.end) / 2 : (from + to) / 2;
      for (let row = (now?.row ?? -1) + by; lanes[row]; row += by) {
        const found = lanes[row].events.reduce((best, event) =>
          (!best || Math.abs(event.start + event.end - 2 * middle) < Math.abs(best.start + best.end - 2 * middle) ? event : best), null);
        if (found) return found;
      }
      return null;
    };
    const MOVES = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2),
      a: () => pan(-0.2), d: () => pan(0.2), 0: all, Escape: all, Home: () => show(0, to - from),
      Enter: () => now && fit(now), " ": () => choose(now && (now.by ?? now.made[0] ?? now)),
      ArrowRight: () => choose(now ? beside(1) ?? now : across(1)), ArrowLeft: () => choose(now ? beside(-1) ?? now : across(1)),
      ArrowDown: () => choose(across(1) ?? now), ArrowUp: () => choose(now && (across(-1) ?? now)),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(MOVES, event.key)) return;
      MOVES[event.key]();
      event.preventDefault();
      event.stopPropagation();
    });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { at: event.clientX, from, to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held) {
        const by = event.clientX - held.at;
        held.moved ||= Math.abs(by) > 3;
        const time = (by / canvas.clientWidth) * (held.to - held.from);
        if (held.moved) show(held.from - time, held.to - time);
        return;
      }
      const found = under(event);
      if (found === over) return;
      over = found;
      canvas.title = found ? words(found) : "";
      said.textContent = found || now ? words(found ?? now) : "";
      redraw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held && !held.moved) choose(under(event));
      held = null;
    });
    canvas.addEventListener("pointercancel", () => { held = null; });
    canvas.addEventListener("pointerleave", () => { over = null; redraw(); });
    canvas.addEventListener("dblclick", (event) => {
      const found = under(event);
      if (found) fit(found);
      else zoom(0.25, timeAt(event));
    });
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) zoom(1.002 ** event.deltaY, timeAt(event));
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / canvas.clientWidth);
      else return;
      event.preventDefault();
    }, { passive: false });
    const BUTTONS = [["\u2212", "Zoom out", () => zoom(2)], ["+", "Zoom in", () => zoom(0.5)],
      ["\u2190", "Earlier", () => pan(-0.4)], ["\u2192", "Later", () => pan(0.4)], ["Whole step", "", all]];
    tools.append(...BUTTONS.map(([text, label, does]) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      if (label) button.title = label;
      if (label) button.setAttribute("aria-label", label);
      button.addEventListener("click", does);
      return button;
    }));
    place.prepend(tools, canvas, said);
    place.classList.add("live");
    addEventListener("resize", redraw);
    new MutationObserver(redraw).observe(root, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    draw();
  };
  const timelines = async () => {
    const coded = await unzipped(byId("events").textContent).json();
    for (const place of document.querySelectorAll(".timeline")) {
      if (Object.hasOwn(coded, place.dataset.at)) timeline(place, coded[place.dataset.at]);
    }
  };
  if (byId("events") && "DecompressionStream" in window) timelines();

  // The Profile that the page carries, unpacked and saved; nothing leaves the browser.
  const save = byId("save-profile");
  const own = byId("profile").textContent;
  const saveProfile = async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await unzipped(own).blob());
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

  // Keys: none is active while typing, or while a dialog is open (which Escape closes by itself).
  const KEYS = {
    t: toggleTheme,
    j: () => walk(1),
    k: () => walk(-1),
    c: () => copy(findingNow() ? findingText(findingNow()) : verdictText()),
    "?": () => keys.showModal(),
    "/": () => filter.focus(),
  };
  addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && filter.value) {
      filter.value = "";
      search();
    }
    const typing = event.target.matches?.("input, select, textarea");
    if (typing && event.key === "Escape") event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
})();
