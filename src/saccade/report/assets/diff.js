/* Two runs side by side. */

function difference() {
  const runs = [{ report: BEFORE, name: "before", style: "before" }, { report: REPORT, name: "after", style: "after" }];
  const before = 1000 * BEFORE.percentiles.p50, after = 1000 * REPORT.percentiles.p50;
  const word = !DIFF.real ? "no different beyond the noise" : DIFF.change > 0 ? `slower by ${percent(after / before - 1)}` : `faster by ${percent(1 - after / before)}`;
  return section("diff", "Difference", `From ${told(BEFORE)} to ${told(REPORT)}.`,
    el("p", {}, "The median run is ", el("b", { class: DIFF.real ? tendency(DIFF.change) : null }, word),
      `: ${micros(before)} before, ${micros(after)} after, ${signed(1000 * DIFF.change)} (noise ${millis(DIFF.noise)}).`),
    DIFF.comparable ? null : el("p", {}, el("span", { class: "chip warn" }, "not alike"), " Device, machine or inputs differ: times of the two do not compare."),
    DIFF.settings.length ? [el("h3", {}, "What was different"), el("ul", {}, DIFF.settings.map((one) => el("li", {}, one)))] : el("p", { class: "soft" }, "Model, machine, options and versions are the same."),
    el("h3", {}, "Whole runs"), wholeTable(),
    el("h3", {}, "Latency"), el("ul", { class: "legend" }, runs.map((run) => el("li", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 2, class: run.style })), `${run.name}, ${told(run.report)}`))),
    histogram(runs), percentileTable(runs),
    el("h3", {}, "Steps, by change"), changes(),
    el("h3", {}, "Memory"),
    el("div", { class: "pair" },
      el("div", {}, el("p", { class: "soft" }, `before: ${bytes(BEFORE.totals.arena)}, ${bytes(BEFORE.totals.live)} in use at once`), arena(BEFORE, "arena-before", true, () => {})),
      el("div", {}, el("p", { class: "soft" }, `after: ${bytes(REPORT.totals.arena)}, ${bytes(REPORT.totals.live)} in use at once`), arena(REPORT, "arena-after", true))));
}

function told(report) {
  const { about } = report;
  return `${about.model.split("/").pop()} (${about.precision}, ${plural(about.threads, "thread")}, ${about.made.slice(0, 16).replace("T", " ")})`;
}

function tendency(change) {
  return change > 0 ? "worse" : change < 0 ? "better" : null;
}

function wholeTable() {
  const time = (key) => [1000 * BEFORE.percentiles[key], 1000 * REPORT.percentiles[key], micros, signed];
  const size = (name) => [BEFORE.totals[name], REPORT.totals[name], bytes, (n) => (n < 0 ? "−" : "+") + bytes(Math.abs(n))];
  const plain = (a, b) => [a, b, String, (n) => (n > 0 ? "+" : "") + n];
  const lines = [
    ["median", ...time("p50")], ["p95", ...time("p95")], ["p99", ...time("p99")],
    ["floor", BEFORE.totals.floor, REPORT.totals.floor, micros, signed],
    ["steps, together", sum("before_us"), sum("after_us"), micros, signed],
    ["number of steps", ...plain(count("before"), count("after"))],
    ["arena", ...size("arena")], ["in use at once", ...size("live")], ["packed weights", ...size("packed")]];
  return el("div", { class: "box" }, table(
    [{ name: "", left: true }, { name: "before" }, { name: "after" }, { name: "change" }, { name: "" }],
    lines.map(([name, a, b, text, change]) => [name, text(a), text(b),
      el("span", { class: a === b ? null : tendency(b - a) }, a === b ? "same" : change(b - a)), a ? `${digits(b / a)}×` : ""])));
}

function sum(name) {
  return DIFF.steps.reduce((total, step) => total + step[name], 0);
}

function count(name) {
  return DIFF.steps.filter((step) => step[name] !== null).length;
}

function changes() {
  const most = Math.max(...DIFF.steps.map((step) => Math.abs(step.change)), 1e-9);
  const lines = DIFF.steps.map((step) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${Math.max(0.05, 6 * Math.abs(step.change) / most)}em`;
    const verdict = step.before === null ? "new" : step.after === null ? "gone" : step.change > 0 ? "slower" : step.change < 0 ? "faster" : "same";
    const name = step.after === null ? `${step.op} ${step.name}` : button(`${step.op} ${step.name}`, () => openStep(step.after));
    return el("tr", { class: "row", "data-words": `${step.op} ${step.name} ${step.what.join(" ")} ${verdict}`.toLowerCase(), "data-changed": step.what.length ? "yes" : "" },
      el("td", { class: "left name stick" }, name),
      el("td", {}, step.before === null ? "–" : micros(step.before_us)), el("td", {}, step.after === null ? "–" : micros(step.after_us)),
      el("td", { class: tendency(step.change) }, signed(step.change)), el("td", { class: "left" }, bar, ` ${verdict}`),
      el("td", { class: "left wrap" }, step.what.map((one) => el("div", {}, one))));
  });
  const heads = ["step", "before", "after", "change", "", "what is different"];
  const body = el("tbody", {}, lines);
  const refilter = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    lines.forEach((line) => { line.hidden = !words.every((word) => line.dataset.words.includes(word)) || (only.checked && !line.dataset.changed); });
  };
  const filter = el("input", { type: "search", id: "diff-filter", placeholder: "Filter: name, kernel, slower, new", "aria-label": "Filter changed steps", oninput: refilter });
  const only = el("input", { type: "checkbox", id: "diff-only", onchange: refilter });
  return [
    el("div", { class: "tools" }, filter, el("label", {}, only, " only where more than the time differs")),
    el("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Changes by step" }, el("table", {},
      el("thead", {}, el("tr", {}, heads.map((name, i) => el("th", { class: i === 0 ? "left stick" : i > 3 ? "left" : null, scope: "col" }, name)))), body))];
}
