/* Theme, pictures, charts. */

const theme = {
  saved() { try { return localStorage.getItem("vade-theme"); } catch { return null; } },
  save(name) { try { localStorage.setItem("vade-theme", name); } catch { /* a private window: not kept */ } },
  set(name) { document.documentElement.dataset.theme = name; },
};

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme.set(theme.saved() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => theme.saved() || theme.set(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    theme.set(name);
    theme.save(name);
  });
}

function startCharts(data) {
  let axis = { key: "step", name: data.axes.step };
  const hosts = [...document.querySelectorAll("[data-chart]")].filter((host) => data.charts[host.dataset.chart]);
  const draw = (host) => host.clientWidth && drawChart(host, data.charts[host.dataset.chart], data.runs, axis);
  const widths = new Map();
  const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    if (widths.get(target) === target.clientWidth) return;
    widths.set(target, target.clientWidth);
    draw(target);
  }));
  hosts.forEach((host) => sizes.observe(host));
  const buttons = [...document.querySelectorAll("[data-axis]")];
  buttons.forEach((button) => button.addEventListener("click", () => {
    axis = { key: button.dataset.axis, name: data.axes[button.dataset.axis] };
    buttons.forEach((b) => b.setAttribute("aria-pressed", b === button));
    hosts.forEach(draw);
  }));
}

function startLinks() {
  const links = [...document.querySelectorAll(".links a")];
  const seen = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
    if (isIntersecting) links.forEach((link) => link.classList.toggle("here", link.hash === `#${target.id}`));
  }), { rootMargin: "-20% 0px -70% 0px" });
  links.forEach((link) => seen.observe(document.querySelector(link.hash)));
}

function start() {
  startTheme();
  const data = JSON.parse(document.getElementById("data").textContent);
  document.querySelectorAll(".card .picture[data-uid]").forEach((place) => place.append(picture(data.prompts, Number(place.dataset.run), place.dataset.uid)));
  startCharts(data);
  startAnswers(data);
  startLinks();
}

start();
