"use strict";

const DATA = JSON.parse(document.getElementById("saccade-report").textContent);
const REPORT = DATA.report;
const BEFORE = DATA.against;
const DIFF = DATA.diff;
const SVG = "http://www.w3.org/2000/svg";

/* Elements. Text goes in as text alone, so that names of a model are never read as markup. */

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function button(text, onclick, more = {}) {
  return el("button", { type: "button", onclick, ...more }, text);
}

function section(id, title, lead, ...children) {
  const heading = el("h2", { id: `${id}-title` }, title);
  const words = lead ? el("p", { class: "lead" }, lead) : null;
  return el("section", { id, "aria-labelledby": `${id}-title` }, heading, words, ...children);
}

function table(heads, rows) {
  const cell = (tag) => (text, i) => el(tag, { class: heads[i].left ? "left" : null }, text);
  return el(
    "table", {},
    el("thead", {}, el("tr", {}, heads.map((head, i) => cell("th")(head.name, i)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell("td"))))),
  );
}

/* Numbers. */

function digits(value, places = 3) {
  if (value === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toLocaleString("en", {
    minimumFractionDigits: 0,
    maximumFractionDigits: Math.min(6, Math.max(0, places - whole)),
  });
}

function micros(us) {
  return us >= 1000 ? `${digits(us / 1000)} ms` : `${digits(us)} µs`;
}

function millis(ms) {
  return micros(1000 * ms);
}

function signed(us) {
  return (us > 0 ? "+" : us < 0 ? "−" : "±") + micros(Math.abs(us));
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB"];
  let at = 0;
  while (count >= 1000 && at < 3) [count, at] = [count / 1000, at + 1];
  return `${digits(count)} ${units[at]}`;
}

function percent(share) {
  const of = 100 * share;
  return `${of.toLocaleString("en", { maximumFractionDigits: of < 10 ? 1 : 0 })}%`;
}

/* 10⁹ or 10¹² a second, by what the machine reaches: `perMicro` is a count for each microsecond. */

const TERA = REPORT.speeds.flops >= 1e7;
const PREFIX = TERA ? "T" : "G";

function rated(perMicro) {
  return digits(perMicro / (TERA ? 1e6 : 1e3));
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function shape(place) {
  return `${place.dtype} ${place.shape.join("×") || "scalar"}`;
}

/* Colours of kernels: those that take longest have one each. Words say the same everywhere. */

const KERNELS = (() => {
  const total = new Map();
  for (const step of [...REPORT.steps, ...(BEFORE ? BEFORE.steps : [])]) {
    total.set(step.kernel, (total.get(step.kernel) || 0) + step.time);
  }
  return [...total.keys()].sort((a, b) => total.get(b) - total.get(a));
})();

function tone(kernel) {
  return `k${Math.min(7, KERNELS.indexOf(kernel))}`;
}

function legend() {
  const shown = KERNELS.slice(0, 7);
  const names = KERNELS.length > 7 ? [...shown, `${KERNELS.length - 7} more`] : shown;
  return el("ul", { class: "legend" }, names.map((name, i) =>
    el("li", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" },
      svg("rect", { width: 12, height: 12, rx: 2, class: `k${i}` })), name)));
}

/* The note beside the pointer, or beside what the keyboard has reached. */

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(x + 14, innerWidth - width - 8);
  const top = y + 18 + height > innerHeight ? y - height - 12 : y + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  tip.hidden = true;
}

addEventListener("scroll", hideTip, { passive: true, capture: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

/* A chart: drawn again when its width changes; its marks carry a number in data-at, are told of
   under the pointer, and are walked through with the arrow keys. */

function chart(label, draw, describe, open) {
  const box = el("div", { class: "canvas" });
  const state = { width: 0, at: -1, node: null };
  function redraw() {
    if (!state.width) return;
    state.node = draw(state.width);
    fill(state.node, { class: "chart", tabindex: 0, role: "group", "aria-label": label }, []);
    listen(state.node);
    box.replaceChildren(state.node);
  }
  function mark(at) {
    return state.node.querySelector(`[data-at="${at}"]`);
  }
  function listen(node) {
    node.addEventListener("pointermove", (event) => {
      const hit = event.target.closest("[data-at]");
      if (hit) showTip(describe(Number(hit.dataset.at)), event.clientX, event.clientY);
      else hideTip();
    });
    node.addEventListener("pointerleave", hideTip);
    node.addEventListener("blur", hideTip);
    node.addEventListener("click", (event) => {
      const hit = event.target.closest("[data-at]");
      if (hit && open) open(Number(hit.dataset.at));
    });
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && open && state.at >= 0) open(state.at);
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) reach(step, event);
    });
  }
  function reach(step, event) {
    const marks = [...new Set([...state.node.querySelectorAll("[data-at]")].map((m) => Number(m.dataset.at)))];
    if (!marks.length) return;
    event.preventDefault();
    const now = marks.indexOf(state.at);
    state.at = marks[now < 0 ? 0 : (now + step + marks.length) % marks.length];
    state.node.querySelectorAll(".chosen").forEach((old) => old.classList.remove("chosen"));
    const found = mark(state.at);
    found.classList.add("chosen");
    const place = found.getBoundingClientRect();
    const text = describe(state.at);
    showTip(text, place.left + place.width / 2, place.top + place.height);
    document.getElementById("said").textContent = text;
  }
  new ResizeObserver((entries) => {
    const width = Math.floor(entries[0].contentRect.width);
    if (width !== state.width) {
      state.width = width;
      redraw();
    }
  }).observe(box);
  return { box, redraw };
}

/* Round numbers for an axis. */

function ticks(low, high, about) {
  const raw = (high - low) / Math.max(1, about) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

function cut(text, room) {
  const most = Math.floor(room / 6.4);
  if (text.length <= most) return text;
  return most < 4 ? "" : `…${text.slice(1 - most)}`;
}
