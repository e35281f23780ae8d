/* The graph, before and after fusion: a row for each node, and beside it the values that are alive. */

const ROW = 28, LANE = 11, MOST_LANES = 22;

function lanes(nodes) {
  const last = nodes.map((_, at) => at);
  nodes.forEach((node, at) => node.reads.forEach((source) => { if (source >= 0) last[source] = Math.max(last[source], at); }));
  const busy = [], own = [], room = [];
  nodes.forEach((_, at) => {
    for (let lane = 0; lane < busy.length; lane++) if (busy[lane] !== null && last[busy[lane]] <= at) busy[lane] = null;
    let lane = busy.findIndex((one) => one === null);
    if (lane < 0) lane = busy.length;
    busy[lane] = at;
    own.push(Math.min(lane, MOST_LANES));
    // Those that end here are still drawn down to this row.
    const ends = nodes[at].reads.filter((source) => source >= 0).map((source) => own[source]);
    const alive = busy.flatMap((one, i) => (one === null ? [] : [Math.min(i, MOST_LANES)]));
    room.push((1 + Math.max(...ends, ...alive)) * LANE + 12);
  });
  return { own, room };
}

function rails(nodes, own, colored) {
  const width = (Math.max(0, ...own) + 1) * LANE + 8, height = nodes.length * ROW;
  const made = svg("svg", { width, height, "aria-hidden": "true" });
  const x = (at) => 8 + own[at] * LANE, y = (at) => at * ROW + ROW / 2;
  nodes.forEach((node, at) => node.reads.filter((source) => source >= 0).forEach((source) => {
    const [a, b, c, d] = [x(source), y(source), x(at), y(at)];
    const bend = a === c ? "" : `L${a} ${d - ROW} C${a} ${d - 8} ${c} ${d - ROW + 8} `;
    made.append(svg("path", { d: `M${a} ${b} ${bend}${a === c ? "L" : ""}${c} ${d}`, stroke: "var(--soft)" }));
  }));
  nodes.forEach((_, at) => made.append(svg("circle", { cx: x(at), cy: y(at), r: 5, class: colored(at) })));
  return made;
}

function dag(nodes, label, line, colored, choose) {
  const { own, room } = lanes(nodes);
  const made = rails(nodes, own, colored);
  const items = nodes.map((node, at) => {
    const item = el("li", { "data-node": at, class: node.reorder ? "moves" : null, onclick: () => choose(at) }, line(node, at));
    item.style.paddingLeft = `${room[at]}px`;
    return item;
  });
  const box = el("div", { class: "box", tabindex: 0, role: "region", "aria-label": label }, el("ol", { class: "dag" }, made, items));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !items.length) return;
    event.preventDefault();
    const now = items.findIndex((item) => item.classList.contains("chosen"));
    choose(Math.min(items.length - 1, Math.max(0, now + step)));
  });
  return { box, items };
}

function reveal(side, numbers) {
  side.items.forEach((item) => item.classList.remove("chosen"));
  numbers.forEach((at) => side.items[at].classList.add("chosen"));
  if (numbers.length) side.box.scrollTop = Math.max(0, side.items[numbers[0]].offsetTop - 120);
}

function graph() {
  const { imported } = REPORT;
  const after = dag(REPORT.steps, "Graph after fusion; arrow keys walk through it", stepLine, (at) => tone(REPORT.steps[at].kernel), chooseStep);
  const before = dag(imported, "Graph before fusion; arrow keys walk through it", nodeLine, (at) => (imported[at].step === null ? "k7" : tone(REPORT.steps[imported[at].step].kernel)), chooseNode);
  const said = el("p", { class: "soft", "aria-live": "polite" }, "Choose a row to see what became of it on the other side.");
  const copies = REPORT.steps.filter((step) => step.reorder).length;
  const gone = imported.filter((node) => node.step === null).length;

  function chooseStep(at) {
    const parts = imported.map((node, i) => (node.step === at ? i : -1)).filter((i) => i >= 0);
    reveal(after, [at]);
    reveal(before, parts);
    said.replaceChildren(`${REPORT.steps[at].op} ${REPORT.steps[at].name} computes ${plural(parts.length, "node")} of the file. `, button("Open the step", () => openStep(at)));
  }

  function chooseNode(at) {
    const { step } = imported[at];
    reveal(before, [at]);
    reveal(after, step === null ? [] : [step]);
    said.replaceChildren(step === null
      ? `${imported[at].name} left no step: it was folded, or became a view of what is stored.`
      : `${imported[at].name} is part of ${REPORT.steps[step].op} ${REPORT.steps[step].name}. `);
    if (step !== null) said.append(button("Open the step", () => openStep(step)));
  }

  const afterPart = el("div", {}, el("h3", {}, `After fusion: ${plural(REPORT.steps.length, "step")}`), after.box);
  const beforePart = el("div", {}, el("h3", {}, imported.length ? `Before: ${plural(imported.length, "node")}` : "Before"),
    imported.length ? before.box : el("p", {}, "The graph of the file is not known here: see the remarks."));
  return section("graph", "Graph",
    `Values run down beside the nodes that make and read them. ${copies ? `Copies into another layout or place (${copies})` : "No step copies into another layout or place; such copies"} and changes of the element type are marked in words.${gone ? ` ${plural(gone, "node")} of the file left no step.` : ""}`,
    said, el("div", { class: "pair" }, beforePart, afterPart));
}

function stepLine(step) {
  const out = step.outputs[0];
  const text = out ? `${out.shape.join("×")} ${out.dtype}` : "";
  return [chips(step), el("span", { class: "op" }, step.op), el("span", {}, step.name),
    el("span", { class: "chip" }, layouts(step) || "–"), el("span", { class: "soft" }, text), el("span", { class: "soft" }, step.time ? micros(step.time) : "")];
}

function nodeLine(node) {
  const gone = node.step === null ? el("span", { class: "chip" }, "no step") : null;
  return [gone, el("span", { class: "op", title: node.attributes }, node.op), el("span", {}, node.name), el("span", { class: "soft" }, `${node.shape.replaceAll("x", "×")} ${node.dtype}`)];
}
