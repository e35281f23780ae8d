/* Arithmetic against traffic: how near each step is to what the machine allows. */

function roofline() {
  const { speeds, about } = REPORT;
  const threads = about.device === "cpu" ? about.threads : 1;
  const peak = speeds.flops * threads, narrow = speeds.pair_flops * threads;
  const near = speeds.cache_bandwidth * threads;
  const dots = REPORT.steps.map((step, at) => ({ at, step, x: step.flops / step.bytes, y: step.flops / step.time }))
    .filter((dot) => dot.step.time > 0 && dot.step.flops > 0 && dot.step.bytes > 0);
  const without = REPORT.steps.filter((step) => step.time > 0 && !step.flops);
  const longest = Math.max(...dots.map((dot) => dot.step.time), 1);
  const named = new Set([...dots].sort((a, b) => b.step.time - a.step.time).slice(0, 5).map((dot) => dot.at));
  const shows16 = narrow > 1.05 * peak && about.precision !== "fp32";
  const top = Math.max(peak, shows16 ? narrow : 0, ...dots.map((dot) => dot.y)) * 1.6;
  const low = Math.min(top / 1e3, ...dots.map((dot) => dot.y)) / 1.6;
  const xs = [Math.min(0.1, ...dots.map((dot) => dot.x)) / 1.4, Math.max(200, ...dots.map((dot) => dot.x)) * 1.4];

  function draw(width) {
    const height = Math.max(300, Math.min(470, width * 0.56)), left = 54, bottom = height - 40, right = width - 10;
    const log = Math.log10;
    const x = (value) => left + (log(value) - log(xs[0])) / (log(xs[1]) - log(xs[0])) * (right - left);
    const y = (value) => bottom - (log(value) - log(low)) / (log(top) - log(low)) * (bottom - 20);
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    for (let power = Math.ceil(log(xs[0])); power <= log(xs[1]); power++) {
      node.append(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 20, y2: bottom, class: "grid" }),
        svg("text", { x: x(10 ** power), y: bottom + 16, "text-anchor": "middle" }, digits(10 ** power)));
    }
    for (let power = Math.ceil(log(low)); power <= log(top); power++) {
      node.append(svg("line", { x1: left, x2: right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }),
        svg("text", { x: left - 7, y: y(10 ** power) + 4, "text-anchor": "end" }, rated(10 ** power)));
    }
    node.append(svg("text", { x: right, y: bottom + 33, "text-anchor": "end" }, "operations for each byte"),
      svg("text", { x: 0, y: 11 }, `${PREFIX}FLOP/s`));
    roofs(node, x, y, width);
    for (const dot of [...dots].sort((a, b) => b.step.time - a.step.time)) node.append(mark(dot, x(dot.x), y(dot.y)));
    names(node, x, y, right);
    return node;
  }

  function roofs(node, x, y, width) {
    const line = (bandwidth, ceiling, style, text) => {
      const knee = ceiling / bandwidth;
      const from = Math.max(xs[0], low / bandwidth);
      node.append(svg("path", { class: `roof ${style}`, d: `M${x(from)} ${y(from * bandwidth)} L${x(knee)} ${y(ceiling)} L${x(xs[1])} ${y(ceiling)}` }));
      const at = Math.max(from, xs[0]) * 1.15;
      const angle = -Math.atan2(y(at * bandwidth) - y(at * 4 * bandwidth), x(at * 4) - x(at)) * 180 / Math.PI;
      node.append(svg("text", { x: x(at), y: y(at * bandwidth) - 6, transform: `rotate(${angle} ${x(at)} ${y(at * bandwidth)})` }, text));
    };
    const highest = shows16 ? narrow : peak;
    if (near > speeds.bandwidth) line(near, highest, "thin", width > 500 ? `cache ${rated(near)} ${PREFIX}B/s` : "cache");
    line(speeds.bandwidth, highest, "", width > 500 ? `memory ${rated(speeds.bandwidth)} ${PREFIX}B/s` : "memory");
    const flat = Math.max(xs[0], peak / speeds.bandwidth);
    node.append(svg("text", { x: x(flat) - 4, y: y(peak) - 7, "text-anchor": "end", class: "strong halo" }, `${rated(peak)} ${PREFIX}FLOP/s, float32`));
    if (shows16) {
      node.append(svg("path", { class: "roof", d: `M${x(flat)} ${y(peak)} L${x(xs[1])} ${y(peak)}` }),
        svg("text", { x: x(xs[1]), y: y(narrow) - 6, "text-anchor": "end", class: "strong halo" }, `${rated(narrow)} ${PREFIX}FLOP/s, 16 bits`));
    }
  }

  function mark(dot, x, y) {
    const size = 4 + 13 * Math.sqrt(dot.step.time / longest);
    const common = { class: `dot ${tone(dot.step.kernel)}`, "data-at": dot.at };
    // Products are round, all else is square: colour is not the only difference.
    if (dot.step.contracts) return svg("circle", { cx: x, cy: y, r: size, ...common });
    return svg("rect", { x: x - size * 0.85, y: y - size * 0.85, width: 1.7 * size, height: 1.7 * size, ...common });
  }

  function names(node, x, y, right) {
    const taken = [];
    const most = right < 500 ? 2 : 5;
    const shown = dots.filter((one) => named.has(one.at)).sort((a, b) => b.step.time - a.step.time).slice(0, most);
    for (const dot of shown.sort((a, b) => b.y - a.y)) {
      const text = cut(dot.step.name, 150);
      let at = y(dot.y) + 4;
      while (taken.some((other) => Math.abs(other - at) < 13)) at += 13;
      taken.push(at);
      const end = x(dot.x) + 22 + 6.2 * text.length > right;
      node.append(svg("text", { x: x(dot.x) + (end ? -20 : 20), y: at, class: "strong halo", "text-anchor": end ? "end" : "start", "pointer-events": "none" }, text));
    }
  }

  function describe(at) {
    const step = REPORT.steps[at];
    return `${step.op} ${step.name}\n${step.kernel}\n${rated(step.flops / step.time)} ${PREFIX}FLOP/s, ${rated(step.bytes / step.time)} ${PREFIX}B/s\n${digits(step.flops / step.bytes)} operations for each byte\n${micros(step.time)}, floor ${micros(step.floor)} (${percent(step.floor / step.time)})`;
  }

  const made = chart("Roofline of the steps; arrow keys walk through them, Enter opens one", draw, describe, openStep);
  const rest = without.length
    ? el("p", { class: "soft" }, `Not shown, as they compute nothing: ${plural(without.length, "step")}, ${micros(without.reduce((sum, step) => sum + step.time, 0))} together.`)
    : null;
  return section("roofline", "Roofline",
    "Each dot is a step, as large as its time: circles are sums of products, squares all else. Below the sloped lines steps wait for memory, below the level one for arithmetic. Operations and bytes are the operator's own, so that caches and Winograd's algorithm may lift a step above a roof.",
    made.box, legend(), rest);
}
