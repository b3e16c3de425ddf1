/* Theme, pictures, links. */

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
