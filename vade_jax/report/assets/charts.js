"use strict";
/* Lines, clouds and maps as SVG, with a read-out for the pointer and the arrow keys. */

const SVG = "http://www.w3.org/2000/svg";
const color = (run) => `var(--c${run % 12})`;

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...children);
  return node;
}

function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function short(x) {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (size >= 1e6) return `${+(x / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(x / 1e3).toPrecision(3)}k`;
  if (size >= 100 || Number.isInteger(x)) return `${Math.round(x)}`;
  return size && size < 1e-3 ? x.toExponential(1) : `${+x.toPrecision(3)}`;
}

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((k) => k * power >= rough * 0.999) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

function logTicks(low, high) {
  const found = [];
  const factors = Math.log10(high / low) < 2 ? [1, 2, 5] : [1];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
    for (const k of factors) if (k * 10 ** p >= low && k * 10 ** p <= high) found.push(k * 10 ** p);
  return found;
}

/* Returns {svg, x, y, inner}: axes with their ticks, x and y from values to pixels. */
function frame(host, xRange, yRange, { height = 230, log = false, left = 42, xTitle = "", yTitle = "", few = false, whole = false }) {
  const width = Math.max(220, host.clientWidth - 28), top = yTitle ? 22 : 8, right = 10, bottom = 36;
  const inner = { left, right: width - right, top, bottom: height - bottom };
  const value = log ? Math.log10 : (v) => v;
  const [y0, y1] = yRange.map(value);
  const x = (v) => inner.left + ((v - xRange[0]) / (xRange[1] - xRange[0] || 1)) * (inner.right - inner.left);
  const y = (v) => inner.bottom - ((value(v) - y0) / (y1 - y0 || 1)) * (inner.bottom - inner.top);
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img" });
  for (const v of log ? logTicks(...yRange) : ticks(...yRange, 5)) {
    node.append(svg("line", { class: "grid-line", x1: inner.left, x2: inner.right, y1: y(v), y2: y(v) }));
    node.append(svg("text", { x: inner.left - 7, y: y(v) + 4, "text-anchor": "end" }, short(v)));
  }
  for (const v of ticks(...xRange, few || width < 330 ? 3 : 6).filter((v) => !whole || Number.isInteger(v)))
    node.append(svg("text", { x: x(v), y: inner.bottom + 16, "text-anchor": "middle" }, short(v)));
  node.append(svg("line", { class: "axis-line", x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom }));
  node.append(svg("text", { x: inner.right, y: height - 4, "text-anchor": "end" }, xTitle));
  if (yTitle) node.append(svg("text", { x: 0, y: 10 }, yTitle));
  return { svg: node, x, y, inner, width };
}

function path(xs, ys, x, y) {
  let text = "", pen = "M";
  xs.forEach((v, i) => {
    if (ys[i] === null) return void (pen = "M");
    text += `${pen}${x(v).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
    pen = "L";
  });
  return text;
}

/* Calls show(place) for the pointer (near(x, y) says where) and the arrow keys; show(null) when they leave. */
function explore(node, near, move, show) {
  let place = null;
  const go = (next) => show((place = next));
  const at = (event) => {
    const box = node.getBoundingClientRect(), scale = node.viewBox.baseVal.width / box.width;
    return near((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
  };
  node.addEventListener("pointermove", (event) => go(at(event)));
  node.addEventListener("pointerdown", (event) => go(at(event)));
  node.addEventListener("pointerleave", () => document.activeElement !== node && go(null));
  node.addEventListener("blur", () => go(null));
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return go(null);
    const next = move(place, event.key);
    if (next === undefined) return;
    event.preventDefault();
    go(next);
  });
}

const along = (count) => (place, key) => ({
  ArrowRight: Math.min(count - 1, place === null ? 0 : place + 1),
  ArrowLeft: Math.max(0, place === null ? count - 1 : place - 1),
  Home: 0, End: count - 1,
})[key];

function nearest(values, wanted) {
  let best = 0;
  values.forEach((v, i) => { if (Math.abs(v - wanted) < Math.abs(values[best] - wanted)) best = i; });
  return best;
}

function legend(entries) {
  const slots = entries.map(({ run, name, dashed, dot }) => {
    const mark = svg("svg", { viewBox: "0 0 20 9", "aria-hidden": "true" }, dot
      ? svg("circle", { cx: 10, cy: 4.5, r: 3.5, style: `fill: ${color(run)}` })
      : svg("line", { x1: 0, x2: 20, y1: 4.5, y2: 4.5, style: `stroke: ${color(run)}`, "stroke-width": dashed ? 1.6 : 2.6, ...(dashed && { "stroke-dasharray": "4 3" }) }));
    const value = html("b");
    return { node: html("span", {}, name ? mark : null, name, " ", value), value };
  });
  const where = html("b");
  return { node: html("div", { class: "legend" }, ...slots.map((slot) => slot.node), html("span", { class: "where" }, where)), where, values: slots.map((slot) => slot.value) };
}

function drawLines(host, chart, runs, axis) {
  const key = axis.key, unit = axis.name, series = chart.series;
  if (!series.length) return [html("p", { class: "none" }, "Not measured.")];
  const seen = (pick) => series.flatMap(pick).filter((v) => v !== null);
  const xs = [...new Set(seen((s) => s[key]))].sort((a, b) => a - b);
  const ys = seen((s) => s.raw && !chart.log ? [...s.y, ...s.raw] : s.y).filter((v) => !chart.log || v > 0);
  const low = Math.min(...ys), high = Math.max(...ys), pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  const from = low >= 0 && low <= 0.5 * high ? 0 : low - pad;
  const yRange = chart.y || (chart.log ? [low / 1.2, high * 1.2] : [from, high + pad]);
  const plot = frame(host, [xs[0], xs[xs.length - 1]], yRange, { log: chart.log, whole: true, xTitle: unit, height: host.classList.contains("small") ? 170 : 240, few: host.classList.contains("small") });
  const { x, inner } = plot, y = (v) => Math.min(inner.bottom, Math.max(inner.top, plot.y(chart.log && v <= 0 ? yRange[0] : v)));
  for (const s of series) {
    if (s.raw) plot.svg.append(svg("path", { d: path(s[key], s.raw, x, y), fill: "none", style: `stroke: ${color(s.run)}`, "stroke-width": 0.9, opacity: 0.28 }));
  }
  for (const s of series) {
    plot.svg.append(svg("path", { d: path(s[key], s.y, x, y), fill: "none", style: `stroke: ${color(s.run)}`, "stroke-linejoin": "round", "stroke-width": s.dashed ? 1.6 : 2.4, ...(s.dashed && { "stroke-dasharray": "5 4" }) }));
    if (chart.points || s.y.length === 1) s[key].forEach((v, i) => s.y[i] !== null && plot.svg.append(svg("circle", { cx: x(v), cy: y(s.y[i]), r: 2.8, style: `fill: ${color(s.run)}` })));
  }
  const several = runs.length > 1;
  const name = (s) => [several && runs[s.run], s.name].filter(Boolean).join(" ");
  const key_ = legend(series.map((s) => ({ ...s, name: name(s) })));
  const cursor = svg("line", { class: "cursor", y1: inner.top, y2: inner.bottom, visibility: "hidden" });
  plot.svg.append(cursor);
  const reach = (xs[xs.length - 1] - xs[0]) / 12;
  const show = (place) => {
    cursor.setAttribute("visibility", place === null ? "hidden" : "visible");
    const at = xs[place ?? xs.length - 1];
    cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at));
    key_.where.textContent = `at ${short(at)} ${unit}`;
    series.forEach((s, i) => {
      const j = nearest(s[key], at), far = Math.abs(s[key][j] - at) > reach;
      key_.values[i].textContent = far ? "–" : short(s.y[j]) + (s.raw ? ` (${short(s.raw[j])})` : "");
    });
  };
  explore(plot.svg, (px) => nearest(xs.map(x), px), along(xs.length), show);
  show(null);
  const last = series.map((s) => `${name(s)} from ${short(s.y[0])} to ${short(s.y[s.y.length - 1])}`).join(", ");
  plot.svg.setAttribute("aria-label", `${chart.title} against ${unit}: ${last}. Arrow keys read it out.`);
  const thinned = series.some((s) => s.thinned) ? [html("p", { class: "lead" }, "Of many points, evenly chosen ones are drawn.")] : [];
  return [key_.node, plot.svg, ...thinned];
}

function drawClouds(host, chart, runs) {
  const side = Math.min(420, Math.max(220, host.clientWidth - 28));
  const plot = frame(host, [0, 1], [0, 1], { height: side, xTitle: "predicted before the rollouts", yTitle: "observed" });
  const { x, y } = plot;
  plot.svg.append(svg("line", { class: "cursor", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  const points = chart.clouds.flatMap((c) => c.x.map((v, i) => ({ run: c.run, x: v, y: c.y[i] }))).sort((a, b) => a.x - b.x);
  for (const p of points) plot.svg.append(svg("circle", { cx: x(p.x), cy: y(p.y), r: 3, style: `fill: ${color(p.run)}`, opacity: 0.3 }));
  for (const c of chart.clouds) {
    plot.svg.append(svg("path", { d: path(c.bins.x, c.bins.y, x, y), fill: "none", style: `stroke: ${color(c.run)}`, "stroke-width": 2.2 }));
    c.bins.x.forEach((v, i) => plot.svg.append(svg("circle", { cx: x(v), cy: y(c.bins.y[i]), r: 4, style: `fill: ${color(c.run)}; stroke: var(--card)`, "stroke-width": 1.2 })));
  }
  const key = legend(chart.clouds.map((c) => ({ run: c.run, dot: true, name: runs.length > 1 ? runs[c.run] : "a step" })));
  const ring = svg("circle", { class: "cell-cursor", r: 5, visibility: "hidden" });
  plot.svg.append(ring);
  const distance = (p, px, py) => (x(p.x) - px) ** 2 + (y(p.y) - py) ** 2;
  const near = (px, py) => points.reduce((best, p, i) => distance(p, px, py) < distance(points[best], px, py) ? i : best, 0);
  explore(plot.svg, near, along(points.length), (place) => {
    ring.setAttribute("visibility", place === null ? "hidden" : "visible");
    const p = points[place ?? 0];
    ring.setAttribute("cx", x(p.x)); ring.setAttribute("cy", y(p.y));
    key.where.textContent = place === null ? "" : `predicted ${short(p.x)}, observed ${short(p.y)}`;
  });
  plot.svg.setAttribute("aria-label", `${points.length} steps: predicted against observed effective ratio. Arrow keys read them out.`);
  return [key.node, plot.svg];
}

function drawMap(host, chart, runs, axis, run) {
  const width = Math.max(220, host.clientWidth - 28), numRows = chart.rows.length, numColumns = chart.columns.length;
  const longest = Math.max(...chart.rows.map((row) => row.length));
  const left = chart.rates ? 42 : Math.min(width * 0.34, 14 + 6.6 * longest), cell = chart.rates ? 9 : 17;
  const height = numRows * cell + 36, right = width - 10, wide = (right - left) / numColumns;
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img" });
  const top = (row) => (chart.up ? numRows - 1 - row : row) * cell;
  const most = Math.max(chart.most, 1e-9);
  chart.values.forEach((column, j) => column.forEach((v, i) => v && node.append(svg("rect", {
    x: (left + j * wide).toFixed(2), y: top(i), width: (wide + 0.4).toFixed(2), height: cell - (chart.rates ? 0 : 1), style: `fill: ${color(run)}`, "fill-opacity": Math.min(1, v / most) ** 0.7 }))));
  if (chart.rates) for (const v of [0, 0.25, 0.5, 0.75, 1]) node.append(svg("text", { x: left - 7, y: (1 - v) * numRows * cell + 4, "text-anchor": "end" }, `${v}`));
  else chart.rows.forEach((row, i) => node.append(svg("text", { x: left - 7, y: top(i) + cell / 2 + 4, "text-anchor": "end" }, longest * 6.6 + 14 > left ? row.slice(0, Math.floor(left / 6.6) - 2) : row)));
  // Round steps, each under the column that contains it.
  for (const step of ticks(chart.columns[0][0], chart.columns[numColumns - 1][1], width < 420 ? 4 : 8)) {
    const j = chart.columns.findIndex(([first, last]) => first <= step && step <= last);
    if (j >= 0) node.append(svg("text", { x: left + j * wide + wide / 2, y: numRows * cell + 15, "text-anchor": "middle" }, `${step}`));
  }
  node.append(svg("line", { class: "axis-line", x1: left, x2: right, y1: numRows * cell, y2: numRows * cell }));
  node.append(svg("text", { x: right, y: height - 3, "text-anchor": "end" }, "step"));
  const frameCell = svg("rect", { class: "cell-cursor", width: Math.max(wide, 3), height: cell, visibility: "hidden" });
  node.append(frameCell);
  const clamp = (v, count) => Math.max(0, Math.min(count - 1, v));
  const near = (px, py) => { const row = clamp(Math.floor(py / cell), numRows); return [clamp(Math.floor((px - left) / wide), numColumns), chart.up ? numRows - 1 - row : row]; };
  const up = chart.up ? 1 : -1;
  const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, up], ArrowDown: [0, -up] };
  const move = (place, key) => steps[key] && (place ? [clamp(place[0] + steps[key][0], numColumns), clamp(place[1] + steps[key][1], numRows)] : [0, 0]);
  const idle = `full color: ${short(100 * most)} % ${chart.unit}${chart.named < numRows ? " or more" : ""}`;
  const where = html("b"), rest = html("span", {}, idle);
  explore(node, near, move, (place) => {
    frameCell.setAttribute("visibility", place ? "visible" : "hidden");
    where.textContent = ""; rest.textContent = idle;
    if (!place) return;
    const [j, i] = place, [first, last] = chart.columns[j];
    frameCell.setAttribute("x", left + j * wide); frameCell.setAttribute("y", top(i));
    where.textContent = `${first === last ? `step ${first}` : `steps ${first}–${last}`}, ${chart.rows[i]}`;
    rest.textContent = `${short(100 * chart.values[j][i])} % ${chart.unit}`;
  });
  node.setAttribute("aria-label", `Map of ${numRows} rows over ${numColumns} spans of steps; ${idle}. Arrow keys read it out.`);
  return [html("div", { class: "legend", "aria-live": "off" }, rest, html("span", { class: "where" }, where)), node];
}

function drawChart(host, chart, runs, axis) {
  const run = chart.kind === "map" ? Number(chart.id.split("-").pop()) : 0;
  const draw = { line: drawLines, scatter: drawClouds, map: drawMap }[chart.kind];
  while (host.children.length > 1) host.lastChild.remove();
  host.append(...draw(host, chart, runs, axis, run));
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
    buttons.forEach((b) => b.setAttribute("aria-pressed", b.dataset.axis === axis.key));
    hosts.forEach(draw);
  }));
}
