// Charts of a page: one uPlot for each quantity, with values under the cursor, in the colours of the page's theme.
"use strict";

const theme = {
  read: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
  dark: () => document.documentElement.dataset.theme === "dark",
  start(onChange) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    let chosen = null; // until somebody presses the button, the system decides
    const apply = () => {
      document.documentElement.dataset.theme = (chosen ?? (system.matches ? "dark" : "light"));
      onChange();
    };
    system.addEventListener("change", apply);
    document.getElementById("theme").addEventListener("click", () => {
      chosen = theme.dark() ? "light" : "dark";
      apply();
    });
    apply();
  },
};

// Steps between the marks of an axis of rounds, which are whole.
const WHOLE = [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));

function shown(value, key, unit) {
  if (value == null) return "–";
  // Epsilons come rounded up from Python, and stay as they are.
  const text = key === "epsilon" ? String(value) : String(Number(value.toPrecision(4)));
  return unit ? `${text} ${unit}` : text;
}

function options(chart, place) {
  const soft = theme.read("--soft"), rule = theme.read("--rule");
  const axis = { stroke: soft, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 }, font: "12px system-ui, sans-serif" };
  const lines = chart.lines.map((line) => ({
    label: line.name.split(":")[0], stroke: theme.read(`--s${line.place % 8}`), width: 2,
    points: { show: line.rounds.length < 3 },
    value: (_, value) => shown(value, chart.key, chart.unit),
  }));
  return {
    width: Math.max(200, place.clientWidth), height: 190,
    cursor: { sync: { key: "rounds" }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: chart.log ? { distr: 3 } : { range: ranged(chart) } },
    axes: [{ ...axis, size: 30, incrs: WHOLE }, { ...axis, size: 56, values: (_, ticks) => ticks.map((t) => (t == null ? "" : String(Number(t.toPrecision(4))))) }],
    series: [{ label: "round", value: (_, value) => (value == null ? "–" : String(value)) }, ...lines],
    hooks: { draw: chart.bound == null ? [] : [(plot) => drawBound(plot, chart.bound)] },
  };
}

function ranged(chart) {
  return (_, low, high) => {
    if (low == null) return [0, 1];
    if (chart.bound != null) { low = Math.min(low, chart.bound); high = Math.max(high, chart.bound); }
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  };
}

function drawBound(plot, bound) {
  const { ctx, bbox } = plot, y = plot.valToPos(bound, "y", true);
  ctx.save();
  ctx.setLineDash([6, 5]);
  ctx.strokeStyle = ctx.fillStyle = theme.read("--soft");
  ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.fillText("bound", bbox.left + bbox.width - 4, y - 4 * devicePixelRatio);
  ctx.restore();
}

function table(chart) {
  const each = chart.lines.map((line) => [line.rounds, line.values]);
  return each.length === 1 ? each[0] : uPlot.join(each, each.map(() => [1]));
}

class Charts {
  constructor() { this.plots = new Map(); }

  draw(place, chart) {
    this.plots.get(place)?.plot.destroy();
    const plot = new uPlot(options(chart, place), table(chart), place);
    this.plots.set(place, { plot, chart });
  }

  update(place, chart) {
    const known = this.plots.get(place);
    const same = known && known.chart.lines.map((l) => l.name).join("\n") === chart.lines.map((l) => l.name).join("\n");
    if (!same) return this.draw(place, chart);
    known.chart = chart;
    known.plot.setData(table(chart));
  }

  redraw() { for (const [place, { chart }] of this.plots) this.draw(place, chart); }

  fit() { for (const [place, { plot }] of this.plots) plot.setSize({ width: Math.max(200, place.clientWidth), height: 190 }); }
}
