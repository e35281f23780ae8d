/* One run as it was: a row for each thread, a block for each phase of a step. */

function timeline(report = REPORT, id = "timeline", open = openStep) {
  const spans = report.steps.flatMap((step, at) => step.spans.flatMap((phase, number) =>
    phase.map(([start, end], thread) => ({ at, number, thread, start, end }))));
  // Not spread as arguments: many threads make more spans than a call takes.
  const whole = spans.reduce((most, one) => Math.max(most, one.end), 1);
  const threads = spans.reduce((most, one) => Math.max(most, one.thread + 1), 1);
  const row = threads > 8 ? Math.max(9, Math.floor(300 / threads)) : 36;
  const gap = row > 20 ? 8 : 2, left = 62, top = 8;
  const view = { from: 0, to: whole };
  const label = "Timeline by thread; arrow keys walk through the steps, Enter opens one";

  function draw(width) {
    const height = top + threads * row + 40;
    const scale = (width - left - 8) / (view.to - view.from);
    const x = (time) => left + (time - view.from) * scale;
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    for (let thread = 0; thread < threads; thread++) {
      const y = top + thread * row;
      const name = report.about.device === "cpu" ? `thread ${thread}` : report.about.device;
      if (thread % Math.ceil(14 / row) === 0) node.append(svg("text", { x: 0, y: y + row / 2 + 2 }, name));
      node.append(svg("rect", { x: left, y: y + gap / 2, width: width - left - 8, height: row - gap, fill: "var(--sunk)", rx: 3 }));
    }
    for (const time of ticks(view.from, view.to, (width - left) / 110)) {
      const y = top + threads * row;
      node.append(svg("line", { x1: x(time), x2: x(time), y1: top, y2: y + 4, class: "grid" }),
        svg("text", { x: Math.min(x(time), width - 24), y: y + 18, "text-anchor": "middle" }, micros(time)));
    }
    for (const one of spans) if (one.end > view.from && one.start < view.to) node.append(...block(one, x));
    overview(node, width, height);
    brush(node, width, x);
    return node;
  }

  function block(one, x) {
    const begin = Math.max(one.start, view.from), end = Math.min(one.end, view.to);
    const width = Math.max(0.6, x(end) - x(begin) - (x(end) - x(begin) > 3 ? 0.8 : 0));
    const y = top + one.thread * row + gap / 2;
    const step = report.steps[one.at];
    const shown = width > 60 && row > 20 ? cut(step.name, width - 8) : "";
    return [
      svg("rect", { x: x(begin), y, width, height: row - gap, rx: width > 5 ? 2 : 0, class: tone(step.kernel), "data-at": one.at }),
      shown ? svg("text", { x: x(begin) + 4, y: y + 18, class: "on" }, shown) : null,
    ].filter(Boolean);
  }

  function overview(node, width, height) {
    const span = width - left - 8, y = height - 9;
    node.append(svg("rect", { x: left, y, width: span, height: 6, rx: 3, fill: "var(--sunk)" }),
      svg("rect", { x: left + span * view.from / whole, y, width: Math.max(4, span * (view.to - view.from) / whole), height: 6, rx: 3, fill: "var(--soft)" }));
  }

  function brush(node, width, x) {
    let begin = null;
    const shade = svg("rect", { y: top, height: threads * row, class: "brush", width: 0 });
    node.append(shade);
    const within = (event) => Math.min(width - 8, Math.max(left, event.clientX - node.getBoundingClientRect().left));
    node.addEventListener("pointerdown", (event) => { begin = within(event); });
    node.addEventListener("pointermove", (event) => {
      if (begin === null || event.buttons === 0) return;
      const now = within(event);
      shade.setAttribute("x", Math.min(begin, now));
      shade.setAttribute("width", Math.abs(now - begin));
    });
    node.addEventListener("pointerup", (event) => {
      if (begin === null) return;
      const time = (at) => view.from + (at - left) / (width - left - 8) * (view.to - view.from);
      const [low, high] = [begin, within(event)].sort((a, b) => a - b);
      begin = null;
      if (high - low > 6) {
        addEventListener("click", (click) => click.stopPropagation(), { capture: true, once: true });
        show(time(low), time(high));
      }
    });
    node.addEventListener("dblclick", () => show(0, whole));
  }

  function show(from, to) {
    const least = Math.min(whole, 1);
    const span = Math.min(whole, Math.max(least, to - from));
    view.from = Math.min(Math.max(0, from), whole - span);
    view.to = view.from + span;
    told.textContent = `${micros(view.from)} to ${micros(view.to)} of ${micros(whole)}`;
    made.redraw();
  }

  function zoom(times) {
    const middle = (view.from + view.to) / 2, half = (view.to - view.from) * times / 2;
    show(middle - half, middle + half);
  }

  function describe(at) {
    const step = report.steps[at];
    const each = step.spans.map((phase) => phase.map(([a, b]) => digits(b - a)).join(" | "));
    return `${step.op} ${step.name}\n${step.kernel}\nmedian ${micros(step.time)}, floor ${micros(step.floor)}\nthis run, by thread: ${each.join("; ")} µs`;
  }

  const made = chart(label, draw, describe, open);
  const told = el("span", { class: "soft", "aria-live": "polite" });
  const pan = (share) => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  const tools = el("div", { class: "tools" },
    button("Zoom in", () => zoom(0.5)), button("Zoom out", () => zoom(2)),
    button("←", () => pan(-0.5), { "aria-label": "Earlier" }), button("→", () => pan(0.5), { "aria-label": "Later" }),
    button("Whole run", () => show(0, whole)), told);
  show(0, whole);
  if (!spans.length) return section(id, "Timeline", null, el("p", {}, "Nothing was clocked."));
  return section(id, "Timeline",
    "One run, the one of median length, as it was. Gaps are barriers, and threads that wait for others. Drag over a part to look closer.",
    tools, made.box, legend());
}
