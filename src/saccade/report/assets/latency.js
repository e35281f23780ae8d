/* Times of whole runs: how they are distributed, and in which order they came. */

const MARKS = [["p50", "p50"], ["p90", "p90"], ["p95", "p95"], ["p99", "p99"]];

function histogram(runs) {
  const all = runs.flatMap((run) => run.report.times);
  const low = Math.min(...all);
  // What lies far out would press all else together: it is counted in the last bin.
  const high = Math.max(...runs.map((run) => Math.min(run.report.percentiles.most, 3 * run.report.percentiles.p50 - 2 * low + 1e-9, run.report.percentiles.p99 * 1.15)), low * 1.02);
  const count = Math.min(44, Math.max(8, Math.round(Math.sqrt(all.length) * 1.6)));
  const bin = (time) => Math.min(count - 1, Math.floor((time - low) / (high - low) * count));
  const bins = runs.map((run) => run.report.times.reduce((found, time) => { found[bin(time)] += 1; return found; }, Array(count).fill(0)));
  const shares = bins.map((found, i) => found.map((n) => n / runs[i].report.times.length));

  function draw(width) {
    const height = 210, left = 8, bottom = 165, top = Math.max(...shares.flat());
    const x = (time) => left + Math.min(1, (time - low) / (high - low)) * (width - left - 8);
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    const span = (width - left - 8) / count;
    shares.forEach((found, i) => found.forEach((share, at) => {
      if (!share) return;
      const size = share / top * (bottom - 40), wide = span / runs.length;
      node.append(svg("rect", { x: left + at * span + i * wide, y: bottom - size, width: Math.max(1, wide - 0.7), height: size, class: runs[i].style, "data-at": i * count + at }));
    }));
    node.append(svg("line", { x1: left, x2: width - 8, y1: bottom, y2: bottom, class: "axis" }));
    for (const time of ticks(low, high, width / 110)) node.append(svg("text", { x: Math.min(x(time), width - 26), y: bottom + 17, "text-anchor": "middle" }, millis(time)));
    if (runs.length === 1) marks(node, x, bottom, width);
    return node;
  }

  function marks(node, x, bottom, width) {
    let end = -99;
    for (const [key, name] of MARKS) {
      const at = x(runs[0].report.percentiles[key]);
      node.append(svg("line", { x1: at, x2: at, y1: 24, y2: bottom, class: "axis", "stroke-dasharray": "3 3" }));
      const place = Math.min(at, width - 34);
      if (place - end > 34) [end] = [place, node.append(svg("text", { x: place, y: 18, "text-anchor": "middle", class: "strong" }, name))];
    }
  }

  function describe(at) {
    const i = Math.floor(at / count), number = at % count;
    const from = low + number * (high - low) / count, to = low + (number + 1) * (high - low) / count;
    const until = number === count - 1 ? "and longer" : `to ${millis(to)}`;
    return `${runs[i].name ? `${runs[i].name}: ` : ""}${plural(bins[i][number], "sample")}\n${millis(from)} ${until}`;
  }
  return chart("Histogram of run times; arrow keys walk through its bars", draw, describe, null).box;
}

function order(report) {
  const { times } = report;
  const high = Math.min(Math.max(...times), 3 * report.percentiles.p50), low = Math.min(...times);
  const draw = (width) => {
    const node = svg("svg", { viewBox: `0 0 ${width} 84`, height: 84 });
    node.append(svg("line", { x1: 8, x2: width - 8, y1: 64, y2: 64, class: "grid" }), svg("text", { x: 8, y: 80 }, "first run"), svg("text", { x: width - 8, y: 80, "text-anchor": "end" }, "last"));
    times.forEach((time, at) => node.append(svg("circle", {
      cx: 8 + at / Math.max(1, times.length - 1) * (width - 16), cy: 62 - (Math.min(time, high) - low) / (high - low || 1) * 54,
      r: times.length > 300 ? 1.3 : 2, class: "k0", "fill-opacity": 0.6,
    })));
    return node;
  };
  return chart("Run times in their order", draw, () => "", null).box;
}

function percentileTable(runs) {
  const names = [["least", "least"], ...MARKS, ["most", "most"], ["mean", "mean"]];
  const heads = [{ name: "", left: true }, ...names.map(([, name]) => ({ name }))];
  return el("div", { class: "box" }, table(heads, runs.map((run) => [run.name || "time", ...names.map(([key]) => millis(run.report.percentiles[key]))])));
}

function latency() {
  const few = REPORT.times.length < 100 ? ` With ${REPORT.times.length} of them p99 is little more than the longest one.` : "";
  const mean = REPORT.totals.queued > 1 ? ` Each sample is the mean of ${REPORT.totals.queued} runs.` : "";
  const runs = [{ report: REPORT, name: "", style: "after" }];
  return section("latency", "Latency", `Whole runs, not clocked step by step: ${plural(REPORT.times.length, "sample")}.${mean}${few}`,
    histogram(runs), percentileTable(runs), el("h3", {}, "In their order"), order(REPORT));
}
