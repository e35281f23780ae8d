/* Everything in its place. */

function contents() {
  const parts = [["advice", "Advice"], ["timeline", "Timeline"], ["roofline", "Roofline"], ["steps", "Steps"],
    ["arena", "Memory"], ["graph", "Graph"], ["latency", "Latency"], ["setting", "Setting"]];
  if (BEFORE) parts.unshift(["diff", "Difference"]);
  const links = parts.map(([id, name]) => el("li", {}, el("a", { href: `#${id}` }, name)));
  const scheme = button("Dark", (event) => {
    const dark = event.currentTarget.textContent === "Dark";
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
    event.currentTarget.textContent = dark ? "Light" : "Dark";
  }, { id: "scheme", "aria-label": "Change between a light and a dark page" });
  if (matchMedia("(prefers-color-scheme: dark)").matches) scheme.textContent = "Light";
  document.getElementById("nav").append(el("ul", {}, links, el("li", {}, scheme)));
  const byId = new Map(parts.map(([id], i) => [id, links[i].firstChild]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.firstChild.removeAttribute("aria-current"));
      byId.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  parts.forEach(([id]) => seen.observe(document.getElementById(id)));
}

head();
document.getElementById("main").append(
  tiles(), ...(BEFORE ? [difference()] : []), advice(), timeline(), roofline(), steps(), arena(), graph(), latency(), setting());
document.getElementById("foot").append(
  el("p", {}, `Made by Saccade ${REPORT.about.saccade}. This file is whole: it holds its data, and fetches nothing.`));
refilter();
contents();
document.documentElement.dataset.ready = "yes";
