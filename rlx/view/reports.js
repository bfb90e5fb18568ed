// -- the reports at the bottom, and the start ----------------------------------------------------

const marks = []; // [element, node]: what a selection marks in the reports

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map((h) => make("th", {}, h)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function cells(values) {
  return values.map((v) => {
    if (v instanceof Node) return make("td", {}, v);
    return make("td", typeof v === "number" ? { class: "count" } : {}, String(v));
  });
}

function row(values, node, pane) {
  const made = make("tr", {}, ...cells(values));
  if (node === undefined) return made;
  made.className = "linked";
  made.tabIndex = 0;
  marks.push([made, node]);
  const go = () => selectNode(node, panes.get(pane));
  made.addEventListener("click", go);
  made.addEventListener("keydown", (e) => { if (e.key === "Enter") go(); });
  return made;
}

function markReports(nodes) {
  for (const [element, node] of marks) element.classList.toggle("related", nodes.has(node));
}

function fusion() {
  const done = table(["fused", "times"], data.fused.map(([pattern, n]) => row([pattern, n])));
  if (!data.missed.length) return [done, make("p", { class: "dim" }, "Nothing nearly fused.")];
  const missed = data.missed.map((m) => row(
    [m.pattern, m.op, m.reason, m.hint, m.count, `${m.file.split("/").pop()}:${m.line}`], m.node, "source"));
  return [done, make("p", {}), table(["missed", "op", "why", "", "times", "where"], missed)];
}

function dispatch() {
  const text = { native: "a kernel family", common: "its own loop nest", rewritten: "other ops" };
  return [table(["ran by", "", "what", "times"],
    data.dispatch.map(([path, name, n]) => row([path, text[path] ?? "", name, n])))];
}

function kernels() {
  const count = (name) => data.launches.filter(([k]) => k === name).length;
  return [table(["kernel", "family", "launches of main", "lines of code", "config"], data.kernels.map((k) => {
    const last = k.listings[k.listings.length - 1];
    return row([k.name, k.family, count(k.name), last.text.split("\n").length, k.config], k.node, "lir");
  }))];
}

function times() {
  const longest = Math.max(...data.seconds.map(([, s]) => s));
  return [table(["stage", "ms", ""], data.seconds.map(([stage, s]) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${Math.max(1, (s / longest) * 320)}px`;
    const ms = make("span", {}, (s * 1e3).toFixed(2));
    return row([stage, ms, bar]);
  }))];
}

// -- the arena: offsets downwards, launches to the right -------------------------------------------

function draw(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function arena() {
  const { bytes: size, packed, buffers } = data.arena;
  const sum = buffers.reduce((n, [, b]) => n + b, 0);
  if (!buffers.length)
    return [make("p", { class: "dim" }, "No value of this schedule is planned in the arena here.")];
  const text = `${plural(buffers.length, "value")} of ${bytes(sum)} share ${bytes(size)}. ` +
    `Offsets run downwards, launches to the right; packed params take ${bytes(packed)} elsewhere.`;
  const left = 76, top = 18, step = Math.max(12, Math.min(90, 1400 / data.launches.length)), height = 300;
  const width = left + step * data.launches.length + 8;
  const svg = draw("svg", { width, height: top + height + 6, role: "group", "aria-label": "Arena" });
  for (let i = 0; i <= 4; i++) {
    const y = top + (height * i) / 4;
    svg.append(draw("line", { x1: left, x2: width, y1: y, y2: y }),
      draw("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, bytes(Math.round((size * i) / 4))));
  }
  const every = Math.ceil(40 / step);
  for (let i = 0; i < data.launches.length; i += every)
    svg.append(draw("text", { x: left + i * step + 2, y: 12 }, String(i)));
  for (const buffer of buffers) svg.append(...drawn(buffer, { left, top, step, height, size }));
  return [make("p", { class: "dim" }, text), legend(), svg];
}

// A value has the colour of the kernel family that writes it.
const families = [...new Set(data.kernels.map((k) => k.family))].sort();
const familyOf = new Map(data.kernels.map((k) => [k.name, k.family]));
const shade = (family) => `hsl(${(200 + (families.indexOf(family) * 360) / families.length) % 360} 50% 72%)`;
const colour = (kernelName) => shade(familyOf.get(kernelName));

function legend() {
  const written = new Set(data.arena.buffers.map(([, , first]) => familyOf.get(data.launches[first][0])));
  return make("p", { class: "dim" }, ...families.filter((f) => written.has(f)).map((f) => {
    const dot = make("span", { class: "dot" });
    dot.style.background = shade(f);
    return make("span", {}, dot, `${f} `);
  }));
}

function drawn([offset, size, first, last, type, node], at) {
  const x = at.left + first * at.step, y = at.top + (offset / at.size) * at.height;
  const width = (last - first + 1) * at.step, height = Math.max(2, (size / at.size) * at.height);
  const writer = data.launches[first][0], reader = data.launches[last][0];
  const rect = draw("rect", {
    x, y, width, height, class: "buffer", rx: 2, tabindex: 0, fill: colour(writer),
  });
  rect.append(draw("title", {}, `${type}: ${bytes(size)} at ${offset}\nwritten by launch ${first}, ${writer}` +
    `\nlast read by launch ${last}, ${reader}`));
  const go = () => selectNode(node, panes.get("lir"));
  rect.addEventListener("click", go);
  rect.addEventListener("keydown", (e) => { if (e.key === "Enter") go(); });
  marks.push([rect, node]);
  const room = Math.floor((width - 6) / 6.2);
  if (height < 13 || room < 4) return [rect];
  const name = type.length > room ? `${type.slice(0, room - 1)}…` : type;
  return [rect, draw("text", { x: x + 4, y: y + Math.min(height / 2, 40) + 4, class: "name" }, name)];
}

// -- tabs ---------------------------------------------------------------------------------------

const tabs = make("nav", { role: "tablist", "aria-label": "Reports" });
const content = make("div", { role: "tabpanel", tabindex: "0" });
for (const [name, build] of Object.entries({ Arena: arena, Fusion: fusion, Dispatch: dispatch, Kernels: kernels, Time: times })) {
  const shown = make("div", {}, ...build());
  const tab = make("button", { role: "tab", id: `tab-${name.toLowerCase()}` }, name);
  tab.addEventListener("click", () => {
    for (const t of tabs.children) t.setAttribute("aria-selected", String(t === tab));
    content.setAttribute("aria-labelledby", tab.id);
    content.replaceChildren(shown);
  });
  tabs.append(tab);
}
tabs.firstChild.click();
const reports = make("section", { id: "reports", "aria-label": "Reports" }, tabs, content);

divider.addEventListener("pointerdown", (e) => {
  divider.setPointerCapture(e.pointerId);
  const move = (e) => {
    const share = 1 - e.clientY / document.body.clientHeight;
    reports.style.flexBasis = `${Math.max(0, Math.min(80, share * 100))}%`;
  };
  divider.addEventListener("pointermove", move);
  divider.addEventListener("pointerup", () => divider.removeEventListener("pointermove", move), { once: true });
});

document.body.append(header, strip, divider, reports, help);
openKernel(data.launches.length ? kernelOf(data.launches[0][0]) : data.kernels[0]);
drawToggles();
follow();
addEventListener("hashchange", follow);
