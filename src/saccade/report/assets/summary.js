/* Head, figures, advice, and what it all ran on. */

function head() {
  const { about } = REPORT;
  const name = about.model.split("/").pop();
  const fact = (label, text) => (text ? el("li", {}, label ? `${label} ` : "", el("b", {}, text)) : null);
  document.getElementById("head").append(
    el("h1", {}, BEFORE ? `${name}: two runs` : name),
    el("ul", { class: "facts" },
      fact("", about.inputs.join(", ")),
      fact("", about.precision), fact("on", about.device), fact("", about.device === "cpu" ? plural(about.threads, "thread") : ""),
      fact("", about.machine.gpu || about.machine.cpu || ""), fact("", about.isa)),
    el("ul", { class: "facts" },
      fact("Saccade", about.saccade), fact("commit", about.commit),
      fact("", about.made.replace("T", " ").replace("+00:00", " UTC"))),
  );
}

function tile(name, value, more, extra) {
  return el("div", { class: "tile" },
    el("div", { class: "name" }, name), el("div", { class: "value" }, value), extra,
    el("div", { class: "more" }, more));
}

function meter(parts, label) {
  const pieces = parts.map(([share, color]) => {
    const piece = el("span");
    piece.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
    piece.style.background = color;
    return piece;
  });
  return el("div", { class: "meter", role: "img", "aria-label": label }, pieces);
}

function tiles() {
  const { totals, percentiles, shares, about } = REPORT;
  const floor = totals.floor / 1000;
  const reached = percentiles.p50 ? floor / percentiles.p50 : 0;
  const rate = percentiles.p50 ? 1000 / percentiles.p50 : 0;
  const images = totals.batch > 1 ? `${digits(rate * totals.batch)} images/s, ${totals.batch} a run` : "runs one after the other";
  const cpu = about.device === "cpu";
  const spent = cpu
    ? `${percent(shares.working)} in kernels, ${percent(shares.imbalance)} waiting for other threads, ${percent(shares.barriers)} at barriers`
    : `${percent(shares.working)} in kernels, the rest between them, clocked one by one`;
  return el("div", { class: "tiles", id: "summary" },
    tile("Median latency", millis(percentiles.p50), `p95 ${millis(percentiles.p95)}, ${plural(REPORT.times.length, "sample")}`),
    tile("Floor of the machine", micros(totals.floor), `no run can be faster; ${percent(reached)} of it reached`,
      meter([[reached, "var(--k2)"]], `${percent(reached)} of the floor reached`)),
    tile("Throughput", `${digits(rate)} /s`, images),
    tile("Memory between steps", bytes(totals.arena), `${bytes(totals.live)} in use at once`),
    tile("Weights", bytes(totals.packed + totals.raw), `${bytes(totals.packed)} packed`),
    tile(cpu ? `${plural(about.threads, "thread")} at work` : "At work", percent(shares.working), spent,
      meter([[shares.working, "var(--k0)"], [shares.imbalance, "var(--k1)"], [shares.barriers, "var(--k7)"]], spent)));
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

function copied(text) {
  return button("Copy", async (event) => {
    const target = event.currentTarget;
    // Without the right to use the clipboard, the text is selected at least.
    try {
      await navigator.clipboard.writeText(text);
      target.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(target.parentNode.querySelector("pre"));
      target.textContent = "Selected";
    }
    setTimeout(() => { target.textContent = "Copy"; }, 1500);
  });
}

function stepLinks(numbers, most = 6) {
  if (!numbers.length) return null;
  const links = numbers.slice(0, most).flatMap((at) => [button(REPORT.steps[at].name, () => openStep(at)), " "]);
  const rest = numbers.length - most;
  return el("p", { class: "links" }, "Steps: ", links, rest > 0 ? `and ${rest} more` : "");
}

function advice() {
  const items = REPORT.advice.map((one) => el("li", {},
    el("h3", {}, one.title),
    el("div", { class: "gain" }, `≈ ${millis(one.gain)}`, el("small", {}, `${percent(one.share)} of a run`)),
    el("div", { class: "body" },
      el("p", {}, one.hazard),
      el("div", { class: "remedy" }, el("pre", { tabindex: 0 }, el("code", {}, one.remedy)), copied(one.remedy)),
      stepLinks(one.steps),
      el("p", { class: "rule" }, "rule ", el("code", {}, one.rule)))));
  const none = el("p", {}, "None of the rules found anything that is worth saying.");
  return section("advice", "Advice",
    "What rules found in this run, by what it could save. Gains are estimates from this profile and the floor; they do not add up.",
    items.length ? el("ul", { class: "advice" }, items) : none);
}

function list(pairs) {
  return el("dl", {}, pairs.filter(([, text]) => text !== "" && text !== null)
    .flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function setting() {
  const { about, speeds, totals } = REPORT;
  const command = ["saccade report", quoted(about.model), ...about.command, "-o", quoted(about.page)].join(" ");
  return section("setting", "Setting", "What ran, and on what. Speeds were measured there; floors and roofs go by them.",
    el("div", { class: "pair" },
      el("div", {}, el("h3", {}, "Model"), list([
        ["file", about.model], ["inputs", about.inputs.join(", ")], ["outputs", about.outputs.join(", ")],
        ["precision", about.precision], ["exact", about.exact ? "yes: no algorithm that rounds more" : "no"],
        ["kernels chosen for", about.planned_for], ["steps", String(REPORT.steps.length)],
        ["floor", `arithmetic ${micros(totals.floor_arithmetic)}, memory ${micros(totals.floor_memory)}, barriers ${micros(totals.floor_barriers)}`],
        ["sources", about.code]])),
      el("div", {}, el("h3", {}, "Machine"), list([
        ...Object.entries(about.machine),
        ["usable cores", String(about.cores)],
        [about.device === "cpu" ? "arithmetic of a core" : "arithmetic", `${rated(speeds.flops)} ${PREFIX}FLOP/s`],
        ["memory", `${rated(speeds.bandwidth)} ${PREFIX}B/s`],
        ["last-level cache", `${bytes(speeds.cache)}, ${rated(speeds.cache_bandwidth)} ${PREFIX}B/s${about.device === "cpu" ? " a core" : ""}`]])),
      el("div", {}, el("h3", {}, "Versions"), list([["Saccade", about.saccade], ...Object.entries(about.versions)]))),
    about.remarks.length ? el("h3", {}, "Remarks") : null,
    about.remarks.length ? el("ul", {}, about.remarks.map((one) => el("li", {}, one))) : null,
    el("h3", {}, "The same again"),
    el("div", { class: "remedy" }, el("pre", { tabindex: 0 }, el("code", {}, command)), copied(command)));
}
