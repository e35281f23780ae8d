/* The arena: what lies where, from the step that writes it to the last one that reads it. */

function arena(report = REPORT, id = "arena", small = false, open = openStep) {
  const { blocks, steps, totals } = report;
  const count = steps.length;
  const live = steps.map((_, at) => blocks.reduce((sum, one) => sum + (one.first <= at && at <= one.last ? one.nbytes : 0), 0));
  const most = live.indexOf(Math.max(...live, 0));
  const starts = [0];
  for (const step of steps) starts.push(starts[starts.length - 1] + step.time);
  const axis = { time: false };

  function draw(width) {
    const left = 62, right = width - 8, area = small ? 150 : 240, foot = small ? 40 : 70;
    const height = area + foot + (small ? 28 : 44);
    const last = axis.time ? starts[count] : count;
    const x = (step) => left + (axis.time ? starts[step] : step) / (last || 1) * (right - left);
    const y = (offset) => 6 + offset / (totals.arena || 1) * area;
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    const pattern = `hatch-${id}`;
    node.append(svg("defs", {}, svg("pattern", { id: pattern, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 5, height: 5, fill: "var(--sunk)" }), svg("line", { y2: 5, stroke: "var(--soft)", "stroke-width": 2 }))));
    node.append(svg("rect", { x: left, y: 6, width: right - left, height: area, fill: "var(--sunk)" }));
    for (const offset of ticks(0, totals.arena, 6)) {
      if (offset > totals.arena) break;
      node.append(svg("line", { x1: left, x2: right, y1: y(offset), y2: y(offset), class: "grid" }),
        svg("text", { x: left - 6, y: y(offset) + 4, "text-anchor": "end" }, bytes(offset)));
    }
    blocks.forEach((one, at) => {
      const work = one.kind === "workspace";
      node.append(svg("rect", {
        x: x(one.first), y: y(one.offset), "data-at": at,
        stroke: y(one.nbytes) - y(0) > 4 ? "var(--card)" : null, "stroke-width": 0.5,
        width: Math.max(1, x(one.last + 1) - x(one.first)), height: Math.max(1, y(one.nbytes) - y(0)),
        class: work ? null : tone(steps[one.first].kernel), fill: work ? `url(#${pattern})` : null,
      }));
    });
    usage(node, x, area + 14, foot, left);
    if (!small) foots(node, x, height - 4, right);
    return node;
  }

  function foots(node, x, y, right) {
    if (axis.time) {
      const scale = (x(count) - x(0)) / (starts[count] || 1);
      for (const time of ticks(0, starts[count], (right - x(0)) / 110)) node.append(svg("text", { x: Math.min(x(0) + time * scale, right - 20), y, "text-anchor": "middle" }, micros(time)));
    } else {
      for (const at of ticks(0, count, (right - x(0)) / 90)) if (at <= count) node.append(svg("text", { x: Math.min(x(Math.round(at)), right - 20), y, "text-anchor": "middle" }, `step ${Math.round(at)}`));
    }
  }

  function usage(node, x, top, height, left) {
    const y = (size) => top + height - size / (totals.arena || 1) * (height - 4);
    const points = live.flatMap((size, at) => [`${x(at)} ${y(size)}`, `${x(at + 1)} ${y(size)}`]);
    const peak = Math.min(x(most) + 4, x(count) - 90);
    node.append(
      svg("path", { d: `M${x(0)} ${top + height} L${points.join(" L")} L${x(count)} ${top + height} Z`, fill: "var(--k0)", opacity: 0.3 }),
      svg("text", { x: left - 6, y: top + 10, "text-anchor": "end" }, "in use"),
      svg("line", { x1: x(most), x2: x(most), y1: top, y2: top + height, class: "axis" }),
      svg("text", { x: peak, y: top + height + 12, class: "strong" }, `most: ${bytes(live[most] || 0)}`));
  }

  function describe(at) {
    const one = blocks[at];
    const until = one.last > one.first ? ` to step ${one.last}, ${steps[one.last].name}` : "";
    const lies = steps[one.first].outputs.filter((place) => place.where.startsWith("arena"));
    const what = one.kind === "workspace" ? "" : `\n${lies.map((place) => `${shape(place)}, ${place.layout}`).join("; ")}`;
    return `${one.label}${what}\n${bytes(one.nbytes)} at ${one.offset.toLocaleString("en")}\nstep ${one.first}${until}`;
  }

  const made = chart("Memory between steps; arrow keys walk through the values, Enter opens the step", draw, describe, (at) => open(blocks[at].first));
  if (small) return blocks.length ? made.box : el("p", {}, "Not known here: see the remarks.");
  const toggle = button("Width by time", (event) => {
    axis.time = !axis.time;
    event.currentTarget.setAttribute("aria-pressed", String(axis.time));
    made.redraw();
  }, { "aria-pressed": "false" });
  const share = totals.arena ? totals.live / totals.arena : 1;
  return section(id, "Memory",
    `Values between steps share one block of ${bytes(totals.arena)}: from left to right the steps, from top to bottom the offset. At most ${bytes(totals.live)} are in use at once, ${percent(share)} of it. Hatched is what steps need while they run.`,
    blocks.length ? [el("div", { class: "tools" }, toggle), made.box] : el("p", {}, "Nothing lies between the steps."));
}
