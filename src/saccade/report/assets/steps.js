/* The table of steps, and all that is known of one of them. */

const COLUMNS = [
  { name: "#", key: (step, at) => at, text: (step, at) => String(at) },
  { name: "step", key: (step) => step.name, left: true },
  { name: "time", key: (step) => step.time, text: (step) => micros(step.time) },
  { name: "share", key: (step) => step.time, text: (step) => percent(step.time / TOTAL) },
  { name: "of floor", key: reached, text: (step) => (step.time ? percent(reached(step)) : "") },
  { name: "kernel", key: (step) => step.kernel, text: (step) => step.kernel, left: true },
  { name: "estimate", key: (step) => step.estimate, text: (step) => micros(step.estimate) + (step.tuned ? "*" : "") },
  { name: "÷ estimate", key: ratio, text: (step) => (ratio(step) ? `${digits(ratio(step), 2)}×` : "") },
  { name: "floor", key: (step) => step.floor, text: (step) => micros(step.floor) },
  { name: `${PREFIX}FLOP/s`, key: (step) => rate(step.flops, step), text: (step) => rated(rate(step.flops, step)) },
  { name: `${PREFIX}B/s`, key: (step) => rate(step.bytes, step), text: (step) => rated(rate(step.bytes, step)) },
  { name: "layout", key: layouts, text: layouts, left: true },
  { name: "type", key: types, text: types, left: true },
  { name: "others", key: (step) => step.refused.length, text: (step) => String(step.refused.length || "") },
];
const TOTAL = REPORT.steps.reduce((sum, step) => sum + step.time, 0) || 1;
const rows = new Map();
const sorting = { column: 0, down: false };

function ratio(step) {
  return step.estimate && step.time ? step.time / step.estimate : 0;
}

function reached(step) {
  return step.time ? step.floor / step.time : 0;
}

function rate(count, step) {
  return step.time ? count / step.time : 0;
}

function change(a, b) {
  return a === b || !a ? b || "" : `${a} → ${b}`;
}

function short(layout) {
  return layout.split(",")[0] + (layout.includes(" of ") ? " part" : layout.includes("padded") ? " padded" : "");
}

function layouts(step) {
  return change(step.inputs.length ? short(step.inputs[0].layout) : "", step.outputs.length ? short(step.outputs[0].layout) : "");
}

function types(step) {
  return change(step.inputs.length ? step.inputs[0].dtype : "", step.outputs.length ? step.outputs[0].dtype : "");
}

function chips(step) {
  const found = [];
  if (step.host) found.push("host");
  if (step.reorder) found.push("copy");
  if (step.inputs.length && step.outputs.length && step.inputs[0].dtype !== step.outputs[0].dtype) found.push("type changes");
  return found.map((text) => el("span", { class: "chip warn" }, text));
}

/* PyTorch repeats names of modules: /features/features.4/block/block.0 is /features.4/block.0. */
function once(name) {
  const parts = name.split("/");
  return parts.filter((part, i) => !part || !parts[i + 1]?.startsWith(`${part}.`)).join("/");
}

/* Both ends of a text, of which the first gives way: the last one tells steps of a block apart. */
function ends(text) {
  const at = Math.max(0, text.length - 20);
  return [el("span", { class: "start" }, text.slice(0, at)), el("span", { class: "end" }, text.slice(at))];
}

function row(step, at) {
  const toggle = button(ends(`${step.op} ${once(step.name)}`), () => expand(at), { "aria-expanded": "false", title: step.name });
  const cells = COLUMNS.map((column, i) => {
    if (i === 1) return el("td", { class: "left name stick" }, el("div", { class: "ends" }, chips(step), toggle));
    return el("td", { class: column.left ? "left" : null }, column.text(step, at));
  });
  const made = el("tr", { class: "row", id: `step-${at}` }, cells);
  rows.set(at, { step, at, made, toggle, detail: null, words: `${step.op} ${step.name} ${step.kernel} ${step.config} ${layouts(step)} ${types(step)}`.toLowerCase() });
  return made;
}

function expand(at, open) {
  const entry = rows.get(at);
  const wanted = open ?? !entry.detail;
  if (wanted && !entry.detail) {
    entry.detail = el("tr", { class: "detail" }, el("td", { colspan: COLUMNS.length }, el("div", { class: "inside" }, detail(entry.step, at))));
    entry.made.after(entry.detail);
  } else if (!wanted && entry.detail) {
    entry.detail.remove();
    entry.detail = null;
  }
  entry.toggle.setAttribute("aria-expanded", String(wanted));
}

function openStep(at) {
  const filter = document.getElementById("filter");
  if (rows.get(at).made.hidden) {
    filter.value = "";
    document.getElementById("kernel").value = "";
    refilter();
  }
  document.querySelectorAll("tr.chosen").forEach((old) => old.classList.remove("chosen"));
  const { made, toggle } = rows.get(at);
  made.classList.add("chosen");
  expand(at, true);
  made.closest(".box").scrollTop = Math.max(0, made.offsetTop - made.closest("table").tHead.offsetHeight);
  document.getElementById("steps").scrollIntoView();
  toggle.focus({ preventScroll: true });
}

function detail(step, at) {
  const place = (one) => `${shape(one)}, ${one.layout}, ${one.where}, ${bytes(one.nbytes)}`;
  const made = step.reads.map((source) => (source < 0
    ? `input ${REPORT.about.inputs[-1 - source].split(" ")[0]}`
    : button(REPORT.steps[source].name, () => openStep(source))));
  const fused = REPORT.imported.filter((node) => node.step === at).map((node) => `${node.op} ${node.name}`);
  return [
    list([
      ["name", step.name], ["operator", step.attributes], ["kernel", step.kernel + (step.host ? ", on the host" : "")], ["config", step.config],
      ["time", step.time ? `${micros(step.time)}, threads at work ${percent(step.busy)} of it${step.phases.length > 1 ? `; phases ${step.phases.map(micros).join(" + ")}` : ""}` : "nothing to run"],
      ["pieces of work", step.chunks.join(" + ")],
      ["work", `${digits(step.flops / 1e6)} MFLOP, ${bytes(step.bytes)} at least`],
      ["note", step.note],
      ["code", step.facts.map((facts) => Object.entries(facts).map(([name, value]) => `${name} ${value}`).join(", ")).filter(Boolean).join("; ")]]),
    el("div", { class: "links" }, made.length ? ["operands made by: ", made.flatMap((one) => [one, " "])] : null),
    el("h3", {}, "Operands and results"),
    el("ul", {}, step.inputs.map((one) => el("li", {}, `in: ${place(one)}`)), step.outputs.map((one) => el("li", {}, `out: ${place(one)}`))),
    refusals(step),
    fused.length ? el("h3", {}, `Nodes of the file in it (${fused.length})`) : null,
    fused.length ? el("p", { class: "mono" }, fused.join("  ·  ")) : null,
  ];
}

function refusals(step) {
  const chosen = [step.kernel, micros(step.estimate), step.tuned ? "by measurement" : micros(step.time), step.host ? "on the host: nothing takes it" : "chosen"];
  const others = step.refused.map((one) => [
    one.kernel || "–", one.estimate === null ? "" : micros(one.estimate),
    one.measured === null ? "" : micros(one.measured),
    one.estimate === null ? one.reason : `slower: ${one.reason}`]);
  return [
    el("h3", {}, step.refused.length ? "Chosen, and refused" : "Chosen; no other kernel does this"),
    table([{ name: "kernel", left: true }, { name: "estimated" }, { name: "measured" }, { name: "why", left: true }], [chosen, ...others]),
  ];
}

function resort(column) {
  sorting.down = sorting.column === column ? !sorting.down : !COLUMNS[column].left && column > 0;
  sorting.column = column;
  const { key } = COLUMNS[column];
  const order = [...rows.values()].sort((a, b) => {
    const [p, q] = [key(a.step, a.at), key(b.step, b.at)];
    const by = typeof p === "string" ? p.localeCompare(q) : p - q;
    return (sorting.down ? -by : by) || a.at - b.at;
  });
  const body = document.querySelector("#steps tbody");
  body.append(...order.flatMap((entry) => [entry.made, entry.detail].filter(Boolean)));
  document.querySelectorAll("#steps thead th[aria-sort]").forEach((head, i) => {
    head.setAttribute("aria-sort", i !== column ? "none" : sorting.down ? "descending" : "ascending");
  });
}

function refilter() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kernel = document.getElementById("kernel").value;
  let shown = 0, time = 0;
  for (const entry of rows.values()) {
    const fits = words.every((word) => entry.words.includes(word)) && (!kernel || entry.step.kernel === kernel);
    entry.made.hidden = !fits;
    if (!fits) expand(entry.at, false);
    if (fits) [shown, time] = [shown + 1, time + entry.step.time];
  }
  document.getElementById("shown").textContent = `${plural(shown, "step")}, ${micros(time)} (${percent(time / TOTAL)})`;
}

function families() {
  const found = new Map();
  for (const step of REPORT.steps) {
    const one = found.get(step.kernel) || { count: 0, time: 0, floor: 0 };
    found.set(step.kernel, { count: one.count + 1, time: one.time + step.time, floor: one.floor + step.floor });
  }
  const bar = (time) => {
    const made = el("span", { class: "bar" });
    made.style.width = `${Math.max(0.05, 7 * time / TOTAL)}em`;
    return made;
  };
  return table(
    [{ name: "kernel", left: true }, { name: "steps" }, { name: "time" }, { name: "share", left: true }, { name: "of floor" }],
    KERNELS.filter((name) => found.has(name)).map((name) => {
      const one = found.get(name);
      return [name, String(one.count), micros(one.time), el("span", {}, bar(one.time), ` ${percent(one.time / TOTAL)}`), one.time ? percent(one.floor / one.time) : ""];
    }));
}

function steps() {
  const heads = COLUMNS.map((column, i) => el("th",
    { class: i === 1 ? "left stick" : column.left ? "left" : null, scope: "col", "aria-sort": i ? "none" : "ascending" },
    button(column.name, () => resort(i))));
  const kernels = [...new Set(REPORT.steps.map((step) => step.kernel))].sort();
  const made = el("table", { class: "whole" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, REPORT.steps.map(row)));
  return section("steps", "Steps",
    "What runs, in order; medians of several clocked runs. A step opens to show its memory, and every kernel that was passed over, with its estimate or the reason why it cannot be taken. Estimates with a star were measured by tuning. More than 100% of the floor is reached where caches help, or Winograd's algorithm.",
    el("div", { class: "tools" },
      el("input", { type: "search", id: "filter", placeholder: "Filter: name, operator, kernel, layout", "aria-label": "Filter steps", oninput: refilter }),
      el("select", { id: "kernel", "aria-label": "Kernel", onchange: refilter }, el("option", { value: "" }, "all kernels"), kernels.map((name) => el("option", { value: name }, name))),
      el("span", { class: "soft", id: "shown", "aria-live": "polite" })),
    el("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Table of steps" }, made),
    el("h3", {}, "By kernel"),
    el("div", { class: "box" }, families()));
}
