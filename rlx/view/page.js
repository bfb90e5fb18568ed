"use strict";
// Shows the compile in #data. Whatever comes from it is put into the page by textContent.
//
// A line of a level shows a node of the compile. Selecting one marks the nodes that it came from,
// and those that came from it. A line of a kernel's stages goes back to one of the kernel's text.

const data = JSON.parse(document.getElementById("data").textContent);

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const bytes = (n) =>
  n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(2)} MiB`;
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;

// -- what came from what ------------------------------------------------------------------------

const users = data.origins.map(() => []);
data.origins.forEach((from, n) => from.forEach((o) => users[o].push(n)));
const launched = new Set(data.launches.map(([, node]) => node));
const relatives = (node) => new Set(node < 0 ? [] : [node, ...data.origins[node], ...users[node]]);

// -- panes --------------------------------------------------------------------------------------

const TOKENS =
  /("(?:[^"\\]|\\.)*")|(%[\w$.#]+)|(@[\w$.]+|#\d+)|((?:tensor|memref|vector)<[^<>]*(?:<[^<>]*>[^<>]*)*>)|(\/\/.*|;.*|^\s*#.*)|(\b(?:[a-z_]\w*\.)+[a-z]\w*)|((?<![\w.])-?(?:0x[\da-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)\b)/g;
const KINDS = ["string", "value", "symbol", "type", "comment", "op", "number"];

function coloured(text) {
  const parts = [];
  let done = 0;
  for (const found of text.matchAll(TOKENS)) {
    const kind = KINDS[found.slice(1).findIndex((t) => t !== undefined)];
    const isOp = kind === "string" && /^"[hml]ir\./.test(found[0]);
    parts.push(text.slice(done, found.index), make("span", { class: isOp ? "op" : kind }, found[0]));
    done = found.index + found[0].length;
  }
  return [...parts, text.slice(done)];
}

const panes = new Map();
const strip = make("main", { id: "panes" });

class Pane {
  // `keys` has for each line its node, or for a kernel's stage its line of the kernel's text.
  constructor(name, title, shown) {
    this.name = name;
    this.count = make("span", { class: "dim" });
    this.head = make("div", {}, make("h2", { id: `title-${name}` }, title), this.count);
    this.body = make("div", {
      class: "code", role: "listbox", tabindex: "0", "aria-labelledby": `title-${name}`,
    });
    this.box = make("section", { class: "pane", id: `pane-${name}` }, this.head, this.body);
    this.box.hidden = !shown;
    this.body.addEventListener("click", (e) => this.pick(e.target.closest(".row")));
    this.body.addEventListener("mouseover", (e) => hover(this, e.target.closest(".row")));
    this.body.addEventListener("mouseleave", () => hover(this, null));
    this.body.addEventListener("keydown", (e) => this.key(e));
    panes.set(name, this);
    strip.append(this.box);
  }

  fill(lines, keys, none, labels = null, folds = []) {
    this.lines = lines;
    this.keys = keys;
    this.none = none;
    this.rows = lines.map((text, i) => {
      const label = labels ? labels[i] : String(i + 1);
      const row = make("div", { class: "row", role: "option", id: `${this.name}-${i + 1}` });
      row.append(make("i", {}, label), make("span", {}, ...coloured(text)));
      if (this.linked(i)) row.classList.add("linked");
      return row;
    });
    this.body.replaceChildren(make("div", { class: "rows" }, ...this.rows));
    this.folds = folds.map(([first, last]) => this.fold(this.rows.slice(first, last + 1)));
    this.mark(new Set());
  }

  fold(rows) {
    const shut = make("button", { class: "fold" }, `${rows.length} more arguments`);
    const set = (hidden) => { for (const r of rows) r.hidden = hidden; shut.hidden = !hidden; };
    shut.addEventListener("click", (e) => { set(false); e.stopPropagation(); });
    rows[0].before(shut);
    set(true);
    return { rows, set };
  }

  // Of the rows that are marked, a launch says more than the views and the kernel that it names.
  matters(row) { return this.name === "lir" && launched.has(this.keys[this.rows.indexOf(row)]); }

  linked(i) { return this.keys.length > 0 && this.keys[i] !== this.none; }
  pick(row) { if (row && row.classList.contains("linked")) select(this, this.rows.indexOf(row)); }

  mark(keys) {
    const marked = this.rows.filter((row, i) => {
      const on = this.linked(i) && keys.has(this.keys[i]);
      row.classList.toggle("related", on);
      if (!on) row.classList.remove("selected");
      return on;
    });
    const all = plural(this.lines.length, "line");
    this.count.textContent = keys.size ? `${marked.length} of ${all}` : all;
    return marked;
  }

  show(row) {
    if (!row || this.box.hidden) return;
    for (const fold of this.folds) if (row.hidden && fold.rows.includes(row)) fold.set(false);
    const box = this.body.getBoundingClientRect(), at = row.getBoundingClientRect();
    if (at.top < box.top || at.bottom > box.bottom)
      this.body.scrollTop += at.top - box.top - box.height / 3;
  }

  key(e) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[e.key];
    if (step && !e.ctrlKey && !e.metaKey && !e.altKey) {
      const usable = this.rows.map((_, i) => i).filter((i) => this.linked(i));
      if (!usable.length) return;
      const own = selection && selection.pane === this ? usable.indexOf(selection.index) : -1;
      const near = this.rows.findIndex((r) => r.classList.contains("related"));
      const from = own >= 0 ? own : near >= 0 ? usable.indexOf(near) - Math.sign(step) : -1;
      select(this, usable[Math.max(0, Math.min(usable.length - 1, from + step))]);
      e.preventDefault();
    } else if (e.key === "ArrowRight" || e.key === "ArrowLeft") {
      const open = [...panes.values()].filter((p) => !p.box.hidden);
      const next = open[open.indexOf(this) + (e.key === "ArrowRight" ? 1 : -1)];
      if (next) { next.body.focus(); next.box.scrollIntoView({ inline: "nearest", block: "nearest" }); }
      e.preventDefault();
    }
  }
}

const STAGES = { mlir: "Kernel", llvm: "LLVM IR", asm: "Assembly", ptx: "PTX" };
const stages = [...new Set(data.kernels.flatMap((k) => k.listings.map((s) => s.stage)))];
const wide = window.innerWidth >= 1500; // all but MIR have room side by side
for (const level of data.levels)
  new Pane(level.name, level.title, level.name !== "mir" && (wide || level.name !== "hir"))
    .fill(level.lines, level.nodes, -1, level.labels, level.folds);
for (const stage of stages)
  new Pane(stage, STAGES[stage] ?? stage, stage === "asm" || stage === "ptx");
if (!data.levels[0].lines.length) panes.get("source").box.hidden = true;

// -- kernels ------------------------------------------------------------------------------------

let kernel = null;
const kernelOf = (name) => data.kernels.find((k) => k.name === name);
const chooser = make("select", { id: "kernel", "aria-label": "Kernel" });
for (const k of data.kernels) chooser.append(make("option", { value: k.name, title: k.config }, k.name));
chooser.addEventListener("change", () => {
  const k = kernelOf(chooser.value);
  openKernel(k);
  selectNode(k.node, panes.get("lir"));
});

function openKernel(k) {
  if (kernel === k || !k) return;
  kernel = k;
  chooser.value = k.name;
  for (const stage of stages) {
    const found = k.listings.find((s) => s.stage === stage);
    const lines = found ? found.text.replace(/\n$/, "").split("\n") : [];
    const pane = panes.get(stage);
    pane.fill(lines, found ? found.lines.slice(0, lines.length) : [], 0);
    pane.body.scrollTop = 0;
    pane.show(pane.rows[lines.findIndex((t) => t.endsWith("_body:"))]); // past the constants
  }
}

// -- selection ----------------------------------------------------------------------------------

let selection = null;

function select(pane, index, quiet = false) {
  const key = pane.keys[index];
  const inKernel = stages.includes(pane.name);
  const nodes = relatives(inKernel ? kernel.node : key);
  selection = { pane, index };
  const found = data.kernels.filter((k) => nodes.has(k.node));
  // Kernels that main launches come before those that pack params.
  const inMain = data.launches.filter(([, n]) => nodes.has(n)).map(([name]) => kernelOf(name));
  const wanted = inMain.length ? inMain : found;
  if (!inKernel && wanted.length && !wanted.includes(kernel)) openKernel(wanted[0]);
  for (const p of panes.values()) {
    const own = stages.includes(p.name);
    const marked = p.mark(own ? new Set(inKernel ? [key] : []) : nodes);
    if (p !== pane) p.show(marked.find((r) => p.matters(r)) ?? marked.find((r) => !r.hidden) ?? marked[0]);
  }
  const row = pane.rows[index];
  for (const r of document.querySelectorAll(".row.selected")) r.classList.remove("selected");
  for (const r of document.querySelectorAll("[aria-selected=true].row")) r.removeAttribute("aria-selected");
  row.classList.add("selected");
  row.setAttribute("aria-selected", "true");
  pane.body.setAttribute("aria-activedescendant", row.id);
  pane.show(row);
  markReports(nodes);
  say(pane, index, nodes, found);
  if (!quiet) remember(`#${inKernel ? `${kernel.name}/` : ""}${pane.name}:${index + 1}`);
}

function selectNode(node, first) {
  for (const pane of [first, ...panes.values()]) {
    if (stages.includes(pane.name)) continue;
    const index = pane.keys.indexOf(node);
    if (index >= 0) return select(pane, index);
  }
}

function clear() {
  selection = null;
  for (const p of panes.values()) p.mark(new Set());
  markReports(new Set());
  summary.textContent = HINT;
  remember("#");
}

function remember(hash) {
  try { history.replaceState(null, "", hash); } catch { /* a page in a frame without an address */ }
}

function follow() {
  const found = /^#(?:([^/]*)\/)?([a-z]+):(\d+)$/.exec(decodeURIComponent(location.hash));
  const pane = found && panes.get(found[2]);
  if (!pane) return;
  if (found[1]) openKernel(kernelOf(found[1]));
  pane.box.hidden = false;
  const index = Number(found[3]) - 1;
  if (index >= 0 && index < pane.rows.length && pane.linked(index)) select(pane, index, true);
  drawToggles();
}

const hovered = new Set();
function hover(pane, row) {
  for (const r of hovered) r.classList.remove("hover");
  hovered.clear();
  if (!row || !row.classList.contains("linked")) return;
  const key = pane.keys[pane.rows.indexOf(row)];
  const inKernel = stages.includes(pane.name);
  const keys = inKernel ? new Set([key]) : relatives(key);
  for (const p of panes.values()) {
    if (stages.includes(p.name) !== inKernel || p.box.hidden) continue;
    p.rows.forEach((r, i) => {
      if (p.linked(i) && keys.has(p.keys[i])) { r.classList.add("hover"); hovered.add(r); }
    });
  }
}

function say(pane, index, nodes, kernels) {
  const parts = [`${pane.name} line ${index + 1}`];
  for (const p of panes.values()) {
    if (stages.includes(p.name) || p === pane) continue;
    parts.push(`${p.keys.filter((n) => nodes.has(n)).length} in ${p.name}`);
  }
  const names = kernels.map((k) => k.name);
  summary.textContent = parts.join(" · ") + (names.length ? ` · ${names.join(", ")}` : "");
}

// -- the bar at the top -------------------------------------------------------------------------

const HINT = "Choose a line to see what it came from and what came of it. ? shows the keys.";
const summary = make("span", { role: "status", "aria-live": "polite" }, HINT);
const toggles = make("div", { class: "group", role: "group", "aria-label": "Panes" });

function drawToggles() {
  toggles.replaceChildren(...[...panes.values()].map((p, i) => {
    const title = p.head.querySelector("h2").textContent;
    const button = make("button", { "aria-pressed": String(!p.box.hidden), title: `Key ${i + 1}` }, title);
    button.addEventListener("click", () => { p.box.hidden = !p.box.hidden; drawToggles(); });
    return button;
  }));
}

const search = make("input", {
  type: "search", id: "search", placeholder: "Search  /", "aria-label": "Search all panes",
});
const hits = make("output", { id: "hits", class: "dim", for: "search" });
let found = [], at = -1;

function find() {
  for (const [, row] of found) row.classList.remove("hit");
  const wanted = search.value.toLowerCase();
  found = [];
  at = -1;
  if (wanted)
    for (const p of panes.values()) {
      if (p.box.hidden) continue;
      p.lines.forEach((text, i) => {
        if (text.toLowerCase().includes(wanted)) found.push([p, p.rows[i], i]);
      });
    }
  for (const [, row] of found) row.classList.add("hit");
  hits.textContent = wanted ? plural(found.length, "match") : "";
}

function next(step) {
  if (!found.length) return;
  at = (at + step + found.length) % found.length;
  const [pane, row, index] = found[at];
  hits.textContent = `${at + 1} of ${found.length}`;
  pane.box.scrollIntoView({ inline: "nearest", block: "nearest" });
  if (pane.linked(index)) select(pane, index);
  else pane.show(row);
}

search.addEventListener("input", find);
search.addEventListener("keydown", (e) => {
  if (e.key === "Enter") next(e.shiftKey ? -1 : 1);
  if (e.key === "Escape") { search.value = ""; find(); search.blur(); }
});

function theme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}
const wrap = () => strip.classList.toggle("wrap");

const KEYS = [
  ["↑ ↓ PageUp PageDown Home End", "the line before or after, in the pane that has the focus"],
  ["← →", "the pane to the left or right"],
  ["1 … 9", "show or hide a pane"],
  ["/", "search; Enter and Shift+Enter go through the matches, and so do n and N"],
  ["w", "wrap long lines"], ["t", "light or dark"], ["Esc", "clear the selection"],
];
const help = make("dialog", { id: "help", "aria-label": "Keys" }, make("table", {}, ...KEYS.map(
  ([keys, text]) => make("tr", {}, make("td", {}, make("kbd", {}, keys)), make("td", {}, text)))));
const ACTIONS = {
  "/": () => search.focus(), w: wrap, t: theme, n: () => next(1), N: () => next(-1), Escape: clear,
  "?": () => help.showModal(),
};
document.addEventListener("keydown", (e) => {
  if (e.target.matches("input, select") || e.ctrlKey || e.metaKey || e.altKey || help.open) return;
  const pane = [...panes.values()][Number(e.key) - 1];
  if (pane) { pane.box.hidden = !pane.box.hidden; drawToggles(); }
  else if (Object.hasOwn(ACTIONS, e.key)) { ACTIONS[e.key](); e.preventDefault(); }
});

function button(text, action) {
  const made = make("button", {}, text);
  made.addEventListener("click", action);
  return made;
}

const total = data.seconds.reduce((sum, [, s]) => sum + s, 0);
const facts = [data.target, plural(data.launches.length, "launch"), plural(data.kernels.length, "kernel"),
  `arena ${bytes(data.arena.bytes)}`, `${(total * 1e3).toFixed(0)} ms`];
const divider = make("div", { id: "divider" }, summary, make("span", { class: "dim" }, facts.join(" · ")));
const header = make("header", {}, make("h1", {}, data.title), make("span", { class: "grow" }), toggles, chooser, search, hits,
  make("div", { class: "group" }, button("Wrap", wrap), button("Theme", theme), button("?", () => help.showModal())));
