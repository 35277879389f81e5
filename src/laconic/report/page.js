"use strict";
// Draws the curves, and lets tables be sorted. All it shows is on the page already: it asks nobody for anything.
(() => {
  const COLOURS = 7, DASHES = 4;
  const UNITS = {
    "bit/s": [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"]],
    s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]],
    B: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  };

  // ---- numbers

  function digits(x, n) {
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size < 1e-4 || size >= 1e7) return x.toExponential(n - 1).replace(/\.?0+e\+?/, "e");
    return size >= 10 ** n ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(n)));
  }

  function shown(x, unit, n = 4) {
    if (x === null) return "–";
    if (unit in UNITS) {
      const sizes = UNITS[unit];
      const [size, name] = x === 0 ? [1, unit] : sizes.find((p) => Math.abs(x) >= 0.9995 * p[0]) ?? sizes.at(-1);
      return `${digits(x / size, n)} ${name}`;
    }
    if (unit === "n") return Number.isInteger(x) ? x.toLocaleString("en") : digits(x, n);
    return `${digits(unit === "%" ? 100 * x : x, n)} ${unit}`.trim();
  }

  // ---- elements

  function element(name, attributes = {}, parent = null, text = "") {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    parent?.append(made);
    return made;
  }

  function drawn(name, attributes, parent, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  }

  function button(text, pressed, parent, act) {
    const made = element("button", { type: "button", "aria-pressed": pressed }, parent, text);
    made.addEventListener("click", act);
    return made;
  }

  const ink = (i) => `i${i % COLOURS} d${Math.floor(i / COLOURS) % DASHES}`;

  // ---- scales

  function scale(values, log, from, to) {
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
    const f = log ? Math.log10 : (x) => x;
    const at = (x) => from + ((to - from) * (f(x) - f(low))) / (f(high) - f(low));
    const room = Math.max(2, Math.floor(Math.abs(to - from) / (to > from ? 90 : 50)));
    return { at, low, high, ticks: log ? logTicks(low, high, room) : linearTicks(low, high, room) };
  }

  function linearTicks(low, high, n) {
    const rough = (high - low) / n, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9 && ticks.length < 50; i++) ticks.push(i * step || 0); // 0, not -0
    return ticks;
  }

  function logTicks(low, high, n) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const inside = (ticks) => ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
    const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    for (const factors of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
      const ticks = inside(powers.flatMap((p) => factors.map((m) => m * 10 ** p)));
      if (ticks.length <= 1.5 * n && ticks.length >= 2) return ticks;
    }
    const tens = inside(powers.map((p) => 10 ** p));
    if (tens.length < 2) return linearTicks(low, high, n);
    const every = Math.ceil(tens.length / n);
    return tens.filter((_, i) => i % every === 0);
  }

  // ---- charts

  /** What is chosen in a chart, or in panels that stand together: axis, scales and curves that are hidden. */
  class View {
    constructor(data) {
      Object.assign(this, { axis: 0, logX: data.logX, logY: data.log, hidden: new Set(), charts: [] });
      this.legend = element("div", { class: "legend", role: "group", "aria-label": "Curves to show" });
      this.controls = element("div", { class: "controls" });
      this.makeControls(data);
      this.makeLegend(data);
    }

    draw() {
      this.charts.forEach((chart) => chart.draw());
    }

    makeControls(data) {
      const axes = element("div", { role: "group", "aria-label": "Horizontal axis" }, this.controls);
      const buttons = data.axes.map((axis, i) => button(axis.name, i === 0, axes, () => {
        this.axis = i;
        buttons.forEach((b, j) => b.setAttribute("aria-pressed", i === j));
        this.draw();
      }));
      const logs = element("div", { role: "group", "aria-label": "Scales" }, this.controls);
      for (const [name, key] of [["log y", "logY"], ["log x", "logX"]]) {
        const made = button(name, this[key], logs, () => {
          this[key] = !this[key];
          made.setAttribute("aria-pressed", this[key]);
          this.draw();
        });
      }
    }

    makeLegend(data) {
      data.curves.forEach((curve) => {
        const made = button("", true, this.legend, () => {
          this.hidden.delete(curve.name) || this.hidden.add(curve.name);
          made.setAttribute("aria-pressed", !this.hidden.has(curve.name));
          this.draw();
        });
        const sample = drawn("svg", { width: 24, height: 10, "aria-hidden": "true" }, made);
        drawn("line", { class: `curve ${ink(curve.ink)}`, x1: 0, x2: 24, y1: 5, y2: 5 }, sample);
        element("span", {}, made, curve.name);
      });
    }
  }

  class Chart {
    constructor(figure, data, view) {
      Object.assign(this, { data, view, place: null });
      this.plot = element("div", { class: "plot" });
      this.tip = element("div", { class: "tip", role: "status" });
      figure.querySelector("figcaption").after(this.plot);
      view.charts.push(this);
      new ResizeObserver(() => this.draw()).observe(this.plot);
    }

    /** Curves that are shown, as lists of points {x, y, all} that the scales can place. */
    visible() {
      const { axis, logX, logY, hidden } = this.view;
      const fits = (v, log) => v !== null && (!log || v > 0);
      return this.data.curves.flatMap((curve) => (hidden.has(curve.name) ? [] : [{
        curve,
        points: curve.points
          .map((all) => ({ x: all[1 + axis], y: all[0], all }))
          .filter((p) => fits(p.x, logX) && fits(p.y, logY)),
      }])).filter((shownCurve) => shownCurve.points.length);
    }

    draw() {
      const width = this.plot.clientWidth, height = width < 500 && this.view.charts.length === 1 ? 260 : 340;
      if (!width) return;
      this.plot.replaceChildren();
      this.tip.replaceChildren();
      this.place = null;
      const label = `${this.data.title}: ${this.data.y.name} over ${this.data.axes[this.view.axis].name}`;
      this.svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": label }, this.plot);
      this.plot.append(this.tip);
      const curves = this.visible();
      if (!curves.length) {
        drawn("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, this.svg, this.view.hidden.size ? "No curve is shown" : "Nothing to show on this scale");
        return;
      }
      this.drawScales(this.view.charts.flatMap((chart) => chart.visible()), width, height);
      this.drawCurves(curves);
      this.listen();
    }

    drawScales(curves, width, height) {
      const xs = curves.flatMap((c) => c.points.map((p) => p.x)), ys = curves.flatMap((c) => c.points.map((p) => p.y));
      const axis = this.data.axes[this.view.axis], [left, right, top, bottom] = [60, width - 16, 24, height - 40];
      this.x = scale(xs, this.view.logX, left, right);
      this.y = scale(ys, this.view.logY, bottom, top);
      for (const t of this.y.ticks) {
        const y = this.y.at(t);
        drawn("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }, this.svg);
        drawn("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, this.svg, shown(t, this.data.y.unit));
      }
      for (const t of this.x.ticks) {
        const x = this.x.at(t);
        drawn("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }, this.svg);
        drawn("text", { x, y: bottom + 18, "text-anchor": x > right - 24 ? "end" : "middle" }, this.svg, shown(t, axis.unit));
      }
      drawn("text", { x: 4, y: 12 }, this.svg, this.data.y.name);
      drawn("text", { x: right, y: height - 4, "text-anchor": "end" }, this.svg, axis.name);
    }

    drawCurves(curves) {
      this.spots = [];
      curves.forEach(({ curve, points }, row) => {
        const at = points.map((p) => ({ ...p, curve, row, px: this.x.at(p.x), py: this.y.at(p.y) }));
        this.spots.push(at);
        const line = at.map((p) => `${p.px.toFixed(1)},${p.py.toFixed(1)}`).join(" ");
        drawn("polyline", { class: `curve ${ink(curve.ink)}`, points: line }, this.svg);
        if (at.length <= 24) {
          for (const p of at) drawn("circle", { class: `curve i${curve.ink % COLOURS}`, cx: p.px, cy: p.py, r: 2 }, this.svg);
        }
      });
      this.cursor = drawn("circle", { class: "cursor", r: 6, visibility: "hidden" }, this.svg);
    }

    listen() {
      this.svg.addEventListener("pointermove", (event) => {
        const box = this.svg.getBoundingClientRect();
        const far = (p) => (p.px - event.clientX + box.left) ** 2 + (p.py - event.clientY + box.top) ** 2;
        this.point(this.spots.flat().reduce((a, b) => (far(b) < far(a) ? b : a)));
      });
      this.svg.addEventListener("pointerleave", () => this.point(null));
      this.svg.addEventListener("blur", () => this.point(null));
      this.svg.addEventListener("keydown", (event) => this.step(event));
    }

    /** Arrow keys: along a curve, and from curve to curve. */
    step(event) {
      const [along, across] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
      if (!along && !across) return;
      event.preventDefault();
      const rows = this.spots.length, row = this.place ? (this.place.row + across + rows) % rows : 0;
      const curve = this.spots[row], i = this.place ? this.spots[this.place.row].indexOf(this.place) + along : 0;
      this.point(curve[Math.min(Math.max(i, 0), curve.length - 1)]);
    }

    point(spot) {
      this.place = spot;
      this.cursor.setAttribute("visibility", spot ? "visible" : "hidden");
      this.tip.replaceChildren();
      if (!spot) return;
      this.cursor.setAttribute("cx", spot.px);
      this.cursor.setAttribute("cy", spot.py);
      const label = spot.all[1 + this.data.axes.length];
      element("strong", {}, this.tip, label ? `${spot.curve.name}: ${label}` : spot.curve.name);
      element("div", {}, this.tip, `${this.data.y.name}: ${shown(spot.y, this.data.y.unit, 5)}`);
      this.data.axes.forEach((axis, i) => element("div", {}, this.tip, `${axis.name}: ${shown(spot.all[1 + i], axis.unit)}`));
      const room = this.plot.clientWidth - this.tip.offsetWidth;
      this.tip.style.left = `${Math.max(0, Math.min(room, spot.px + 12))}px`;
      this.tip.style.top = `${spot.py + (spot.py > 150 ? -this.tip.offsetHeight - 12 : 12)}px`;
    }
  }

  // ---- tables

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, i) => {
      const text = head.textContent;
      if (!text.trim()) return; // a column of marks: a button needs a name
      head.textContent = "";
      element("button", { type: "button", title: "Sort" }, head, text).addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...[...body.rows].sort((a, b) => compared(a.cells[i], b.cells[i], down ? -1 : 1)));
      });
    });
  }

  /** Numbers by size, then text by the alphabet; what is missing comes last either way. */
  function compared(a, b, sign) {
    const [x, y] = [a, b].map((cell) => (cell?.dataset.v === undefined ? null : Number(cell.dataset.v)));
    if (x !== null && y !== null) return sign * (x - y);
    if (x !== null || y !== null) return x === null ? 1 : -1;
    return sign * (a?.textContent ?? "").localeCompare(b?.textContent ?? "", "en", { numeric: true });
  }

  const charts = JSON.parse(document.getElementById("charts").textContent);
  const shared = new Map(); // views of panels that stand together
  document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    const data = charts[figure.dataset.chart], panels = figure.closest(".panels");
    const view = shared.get(panels) ?? new View(data);
    new Chart(figure, data, view);
    if (panels && !shared.has(panels)) {
      shared.set(panels, view);
      panels.prepend(view.controls, view.legend);
    } else if (!panels) figure.querySelector("figcaption").after(view.controls, view.legend);
  });
  document.querySelectorAll("table.sortable").forEach(sortable);
  if (window.innerWidth < 1088) document.querySelector("nav details").removeAttribute("open");
})();
