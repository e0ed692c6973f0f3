// Draw the charts of a job with Vega-Lite from the data in the page, and redraw them on changes.
import { expressionInterpreter } from "./vega-interpreter-2.3.2.js";

const WIDTH = 780;
const ROW = 26;
const HEIGHT = 150;
const PADDING = { left: 196, right: 24, top: 18, bottom: 26 };
const CONFIG = {
  aria: false, font: "system-ui, sans-serif", view: { stroke: null }, text: { fontSize: 12, fill: "var(--soft)" },
  axis: {
    labelColor: "var(--soft)", labelFontSize: 12, titleColor: "var(--soft)", titleFontWeight: "normal",
    gridColor: "var(--line)", domain: false, ticks: false, labelPadding: 8,
  },
};

// Colors are CSS variables, so that the style sheet defines the light and dark themes.
const colour = { field: "colour", type: "nominal", scale: null };
const tooltip = { field: "text", type: "nominal" };
const painted = (rows) => rows.map((row) => ({ ...row, colour: `var(--${row.colour})` }));

const around = (axis, height, layer) => {
  const time = (field) => ({ field, type: "quantitative", axis: null, scale: { nice: false, zero: false } });
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json", background: null, config: CONFIG, padding: PADDING,
    autosize: "none", width: WIDTH, height,
    layer: [
      { data: { values: axis.gaps }, mark: { type: "rect", color: "var(--faint)" },
        encoding: { x: time("begin"), x2: { field: "end" }, tooltip } },
      { data: { values: axis.ticks }, mark: { type: "rule", color: "var(--line)" }, encoding: { x: time("at") } },
      { data: { values: axis.ticks }, mark: { type: "text", baseline: "top", dy: 8 },
        encoding: { x: time("at"), y: { value: height }, text: { field: "text" } } },
      ...layer(time),
    ],
  };
};

const gantt = (chart, axis) => around(axis, ROW * Math.max(1, chart.lanes.length), (time) => {
  const lanes = chart.lanes.map((name, row) => ({ name, row }));
  const y = { field: "row", type: "ordinal", axis: null, scale: { domain: lanes.map((one) => one.row), padding: 0.2 } };
  const bars = (values, mark) => ({
    data: { values: painted(values) }, mark: { type: "bar", cornerRadius: 3, ...mark },
    encoding: { x: time("begin"), x2: { field: "end" }, y, fill: colour, stroke: colour, tooltip },
  });
  const lost = chart.bars.filter((bar) => bar.lost);
  return [
    { data: { values: lanes }, mark: { type: "text", align: "right", dx: -8, limit: 180, fill: "var(--ink)" },
      encoding: { x: { value: 0 }, y, text: { field: "name" } } },
    bars(chart.stays, { opacity: 0.55 }),
    bars(chart.bars, {}),
    { data: { values: chart.checkpoints }, mark: { type: "tick", color: "var(--ink)", thickness: 2, bandSize: 10 },
      encoding: { x: time("at"), y, tooltip } },
    { data: { values: lost }, mark: { type: "point", shape: "cross", angle: 45, filled: true, size: 160, opacity: 1, color: "var(--bad)" },
      encoding: { x: time("end"), y, tooltip } },
    { data: { values: chart.deadline }, mark: { type: "rule", color: "var(--bad)", strokeWidth: 2, strokeDash: [5, 4] },
      encoding: { x: time("at"), tooltip } },
  ];
});

const lines = (chart, axis) => around(axis, HEIGHT, (time) => {
  const y = { field: "value", type: "quantitative", axis: { title: chart.unit || null, tickCount: 4 } };
  const points = { values: painted(chart.points) };
  const dot = [["series", "Name"], ["after", "After"], ["shown", "Value"]];
  return [
    { data: { values: chart.levels }, mark: { type: "rule", color: "var(--soft)", strokeWidth: 1.5, strokeDash: [6, 4] },
      encoding: { x: time("begin"), x2: { field: "end" }, y, tooltip } },
    { data: { values: chart.levels }, mark: { type: "text", align: "right", dx: -4, dy: -8 },
      encoding: { x: { value: WIDTH }, y, text: { field: "name" } } },
    { data: points, mark: { type: "line", interpolate: chart.steps ? "step-after" : "linear", strokeWidth: 2 },
      encoding: { x: time("at"), y, stroke: colour, detail: { field: "series" } } },
    { data: points, mark: { type: "circle", size: 30, opacity: chart.points.length <= 60 ? 1 : 0 },
      encoding: { x: time("at"), y, fill: colour, tooltip: dot.map(([field, title]) => ({ field, title, type: "nominal" })) } },
  ];
});

const made = (tag, given, ...inside) => {
  const element = document.createElement(tag);
  Object.entries(given).forEach(([name, value]) => element.setAttribute(name, value));
  element.append(...inside);
  return element;
};

const view = (chart, axis) => {
  const described = chart.kind === "gantt" ? { "aria-describedby": "use-remark" } : {};
  const picture = made("div", { class: "chart", role: "img", "aria-label": chart.title, ...described });
  const spec = vegaLite.compile((chart.kind === "gantt" ? gantt : lines)(chart, axis)).spec;
  // Vega supports piecewise linear scales, Vega-Lite only two end points.
  const range = axis.range.map((share) => share * WIDTH);
  Object.assign(spec.scales.find((scale) => scale.name === "x"), { domain: axis.domain, range });
  const runtime = vega.parse(spec, null, { ast: true });
  return { picture, view: new vega.View(runtime, { expr: expressionInterpreter, renderer: "svg", container: picture }) };
};

const legend = (names) => made("p", { class: "legend" }, ...names.map((name, at) =>
  made("span", {}, made("i", { class: `k c${at % 6}` }), name)));

const place = document.getElementById("drawings");
let text = "";
let views = [];

const draw = async () => {
  const given = document.getElementById("charts").textContent;
  if (given === text) return;
  text = given;
  const { axis, charts } = JSON.parse(text);
  const drawn = charts.map((chart) => view(chart, axis));
  await Promise.all(drawn.map((one) => one.view.runAsync()));
  const parts = charts.flatMap((chart, at) => [
    ...(at ? [made("h3", {}, chart.title)] : []),
    made("div", { class: "scroll", role: "group", "aria-label": chart.title, tabindex: 0 }, drawn[at].picture),
    ...((chart.names ?? []).length > 1 ? [legend(chart.names)] : []),
  ]);
  const scrolled = [...place.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  place.replaceChildren(...parts);
  place.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
  document.getElementById("pictures").hidden = !charts.length;
  views.forEach((one) => one.view.finalize());
  views = drawn;
};

document.addEventListener("fresh", draw);
draw();
