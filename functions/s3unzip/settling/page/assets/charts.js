"use strict";
// The drawings, by uPlot. Each stands in a figure with a caption, a finding in words and a table.

const charts = [];
// Equal left edges, so that one moment is one vertical line through all charts over time.
const LEFT = (width) => (width < 560 ? 64 : 76);

// Colours come from the style sheet, so that light and dark are decided in one place.
function tone(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function figure(host, { title, finding, columns, rows, keys = [] }) {
  const readout = make("span", { className: "readout", "aria-hidden": "true" });
  const plot = make("div", { className: "plot", "aria-hidden": "true" });
  const data = table(title, columns, rows).element;
  const label = `caption-${charts.length}`;
  const legend = keys.map(([name, colour, faint]) => {
    const swatch = make("i", { className: faint ? "faint" : "", "aria-hidden": "true" });
    swatch.style.setProperty("--tone", `var(--${colour})`);
    return make("li", {}, swatch, name);
  });
  host.append(make("figure", { "aria-labelledby": label },
    make("figcaption", { id: label }, make("b", {}, title), readout),
    make("p", { className: "finding" }, finding),
    legend.length ? make("ul", { className: "keys" }, ...legend) : null,
    plot,
    make("details", {}, make("summary", {}, `Table: ${title}`),
      make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": `Table: ${title}` }, data))));
  return { plot, readout };
}

// Draw now, and again whenever the colours or the width change.
function draw(plot, build) {
  const chart = { plot, build, made: null };
  charts.push(chart);
  rebuild(chart);
  let width = plot.clientWidth;
  new ResizeObserver(() => {
    if (plot.clientWidth !== width) { width = plot.clientWidth; rebuild(chart); }
  }).observe(plot);
}

function rebuild(chart) {
  if (chart.made) { chart.made.destroy(); }
  chart.made = chart.build(Math.max(120, chart.plot.clientWidth));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(rebuild));

function axis(side, extra) {
  return {
    side, stroke: tone("soft"), font: `11px ${tone("sans")}`, gap: 6,
    grid: { stroke: tone("rule"), width: 1 }, ticks: { show: false }, ...extra,
  };
}

const TIME_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
  60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];

// Of an axis of bytes: its marks are whole KiB, MiB or GiB.
const BINARY_STEPS = Array.from({ length: 45 }, (_, at) => 2 ** at);

function timeAxis(extra = {}) {
  return axis(2, { size: 26, space: 64, incrs: TIME_STEPS, values: (_, at) => at.map(tick), ...extra });
}

function base(width, height, extra) {
  return {
    width, height, padding: [6, 22, 0, 0], legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false }, ...extra.cursor },
    series: [{}, { paths: () => null, points: { show: false } }],
    ...extra.rest,
  };
}

// Charts over the run's time zoom and point together: drag to zoom, double click to return.
const SHARED = { sync: { key: "time", setSeries: false, scales: ["x", null] } };

// One value a step of time, as a step line over the whole run.
function steps(host, spec) {
  const { values, step, end, colour, format, words, incrs } = spec;
  const times = values.map((_, at) => at * step).concat([values.length * step]);
  const levels = values.concat([values[values.length - 1]]);
  if (times[values.length] < end) { times.push(end); levels.push(null); }
  const { plot, readout } = figure(host, spec);
  const point = (u) => {
    const at = u.cursor.left < 0 ? -1 : Math.floor(u.posToVal(u.cursor.left, "x") / step);
    readout.textContent = at >= 0 && at < values.length ? words(at) : "";
  };
  draw(plot, (width) => new uPlot(base(width, 132, {
    cursor: SHARED,
    rest: {
      scales: {
        x: { time: false, range: (_, low, high) => [low, Math.min(high, end)] },
        y: { range: (_, low, high) => [0, Math.max(high, 1e-9) * 1.08] },
      },
      axes: [timeAxis(), axis(3, {
        size: LEFT(width), space: 36, values: (_, at) => at.map(format), ...(incrs ? { incrs } : {}),
      })],
      series: [{}, {
        stroke: tone(colour), width: 1.5, fill: `${tone(colour)}22`, points: { show: false },
        paths: uPlot.paths.stepped({ align: 1 }),
      }],
      hooks: { setCursor: [point] },
    },
  }), [times, levels], plot));
}

// Bars over equal bins from `from` to `from + counts.length`, in units of one bin.
function bars(host, spec) {
  const { counts, colour, edge, words } = spec;
  const { plot, readout } = figure(host, spec);
  const paint = (u) => {
    u.ctx.fillStyle = tone(colour);
    const floor = u.valToPos(0, "y", true);
    counts.forEach((amount, at) => {
      if (!amount) { return; }
      const left = u.valToPos(at, "x", true);
      const right = u.valToPos(at + 1, "x", true);
      // A bin of one among a million is still there.
      const high = Math.max(2 * devicePixelRatio, floor - u.valToPos(amount, "y", true));
      u.ctx.fillRect(Math.round(left) + 1, floor - high, Math.max(1, Math.round(right) - Math.round(left) - 1), high);
    });
  };
  draw(plot, (width) => new uPlot(base(width, 168, {
    cursor: { drag: { x: false, y: false } },
    rest: {
      scales: { x: { time: false, range: [0, counts.length] }, y: { range: (_, low, high) => [0, high * 1.08] } },
      axes: [axis(2, { size: 26, space: 52, incrs: [1, 2, 4, 5, 8, 10, 16, 20], values: (_, at) => at.map(edge), grid: { show: false } }),
        axis(3, { size: 48, space: 26, values: (_, at) => at.map((value) => (Number.isInteger(value) ? number(value) : "")) })],
      hooks: { draw: [paint], setCursor: [(u) => {
        const at = Math.floor(u.posToVal(u.cursor.left, "x"));
        readout.textContent = u.cursor.left >= 0 && at >= 0 && at < counts.length ? words(at) : "";
      }] },
    },
  }), [counts.map((_, at) => at).concat([counts.length]), counts.concat([0])], plot));
}

// lines: {group, colour, from, to, start, stop, words}; a group's lines stand together, named at the left.
function gantt(host, spec) {
  const { lines, end } = spec;
  const { plot, readout } = figure(host, spec);
  const many = lines.length;
  const thick = many <= 24 ? 13 : many <= 60 ? 7 : 3;
  const groups = [];
  let top = 0;
  for (const row of lines) {
    const last = groups[groups.length - 1];
    if (!last || last.name !== row.group) {
      top += last ? 5 : 0;
      groups.push({ name: row.group, top, bottom: top });
    }
    row.top = top;
    row.thick = row.tall ? 13 : thick;
    top += row.thick + (thick > 3 || row.tall ? 2 : 0);
    groups[groups.length - 1].bottom = top;
  }
  const paint = (u) => {
    const zoom = devicePixelRatio;
    const across = (from, to, y, high, alpha) => {
      const left = u.valToPos(from, "x", true);
      u.ctx.globalAlpha = alpha;
      u.ctx.fillRect(left, y, Math.max(1.5 * zoom, u.valToPos(to, "x", true) - left), high);
    };
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    for (const row of lines) {
      // Whole pixels, or rows that touch would show a seam.
      const y = Math.round(u.bbox.top + row.top * zoom);
      const high = Math.round(u.bbox.top + (row.top + row.thick) * zoom) - y;
      u.ctx.fillStyle = tone(row.colour);
      if (row.from < row.start || row.to > row.stop) { across(row.from, row.to, y, high, 0.28); }
      across(row.start, row.stop, y, high, 1);
    }
    u.ctx.restore();
  };
  draw(plot, (width) => new uPlot(base(width, top + 30, {
    cursor: { ...SHARED, y: true },
    rest: {
      padding: [4, 22, 0, 0],
      scales: { x: { time: false, range: (_, low, high) => [low, high] }, y: { range: [0, top], dir: -1 } },
      axes: [timeAxis(), axis(3, {
        size: LEFT(width), grid: { show: false },
        splits: () => groups.map((group) => Math.min((group.top + group.bottom) / 2, group.top + 40)),
        values: () => groups.map((group) => group.name),
      })],
      hooks: { draw: [paint], setCursor: [(u) => {
        const { left, top: y } = u.cursor;
        const row = left < 0 ? null : lines.find((some) => y >= some.top - 1 && y < some.top + some.thick + 1);
        readout.textContent = row ? row.words : "";
      }] },
    },
  }), [[0, end], [0, top]], plot));
}
