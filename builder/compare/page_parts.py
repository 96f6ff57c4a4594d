"""The fixed parts of the page: its style, and the script that draws what the data say."""

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1200px; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; max-height: 32rem; overflow-y: auto; border: 1px solid #ddd; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #eee; }
th { position: sticky; top: 0; background: #f6f6f6; cursor: pointer; }
td.text, th.text { text-align: left; max-width: 28rem; overflow: hidden; text-overflow: ellipsis; }
tr.part { color: #888; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.warn { background: #fff4d6; border-left: 4px solid #e0a800; padding: .5rem .8rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 1rem; }
.plots > div { height: 400px; min-width: 0; }
#curves { height: 480px; } label { margin-right: 1.2rem; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const colour = (place) => data.colours[place];
const look = { margin: { l: 70, r: 20, t: 30, b: 50 }, hovermode: "closest", font: { size: 12 } };
const tools = { responsive: true, displaylogo: false };
const pick = (name) => document.getElementById(name).value;

function curves() {
  const axis = pick("axis"), metric = pick("metric"), logs = document.getElementById("logs").checked;
  const traces = [];
  for (const line of data.curves[metric][axis]) {
    const group = "g" + line.place, tint = colour(line.place);
    if (line.low) {
      traces.push({ x: line.x.concat(line.x.slice().reverse()), y: line.high.concat(line.low.slice().reverse()),
        fill: "toself", fillcolor: tint + "22", line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false,
        legendgroup: group });
    }
    traces.push({ x: line.x, y: line.y, name: line.label, legendgroup: group,
      mode: line.x.length < 20 ? "lines+markers" : "lines",
      line: { color: tint, width: 2, dash: line.dashed ? "dash" : "solid" }, marker: { size: 5 },
      hovertemplate: "%{y:.5g} at %{x:,}<extra>" + line.label + "</extra>" });
  }
  const range = data.windows[metric];
  Plotly.react("curves", traces, { ...look, xaxis: { title: { text: data.axes[axis] }, type: logs ? "log" : "linear" },
    yaxis: { title: { text: metric }, range: range || undefined, autorange: !range } }, tools);
}

function plane(place, box) {
  const spots = place.spots, front = spots.filter((spot) => spot.on_front).sort((a, b) => a.cost - b.cost);
  const bars = spots.map((spot) => spot.high === null ? 0 : spot.high - spot.value);
  Plotly.newPlot(box, [
    { x: front.map((spot) => spot.cost), y: front.map((spot) => spot.value), mode: "lines", line: { color: "#999" },
      hoverinfo: "skip" },
    { x: spots.map((spot) => spot.cost), y: spots.map((spot) => spot.value), text: spots.map((spot) => spot.label),
      mode: "markers",
      error_y: { array: bars, visible: bars.some((bar) => bar > 0), color: "#999", thickness: 1, width: 0 },
      marker: { size: 9, color: spots.map((spot) => colour(spot.place)),
        symbol: spots.map((spot) => spot.on_front ? "circle" : "circle-open") },
      hovertemplate: "%{text}<br>%{y:.5g} at %{x:,}<extra></extra>" }],
    { ...look, showlegend: false, xaxis: { title: { text: place.axis }, type: place.logs ? "log" : "linear" },
      yaxis: { title: { text: data.metric } } }, tools);
}

function scaling(law, box) {
  const x = law.band.map((row) => row[0]), at = (column) => law.band.map((row) => row[column]);
  Plotly.newPlot(box, [
    { x: x.concat(x.slice().reverse()), y: at(3).concat(at(2).reverse()), fill: "toself", fillcolor: "#1f77b433",
      line: { width: 0 }, hoverinfo: "skip", name: "95% of the resampled fits" },
    { x: x, y: at(1), mode: "lines", line: { color: "#1f77b4" }, name: "E + A / N^a" },
    { x: law.sizes, y: law.losses, mode: "markers", marker: { color: "black", size: 8 }, name: "measured" }],
    { ...look, xaxis: { title: { text: "parameters N" }, type: "log" }, yaxis: { title: { text: data.metric } } },
    tools);
}

function box(where) {
  const made = document.createElement("div");
  document.getElementById(where).appendChild(made);
  return made;
}

function sortable(table) {
  table.querySelectorAll("th").forEach((head, column) => head.addEventListener("click", () => {
    const body = table.tBodies[0], up = head.dataset.up !== "yes";
    const key = (row) => { const cell = row.cells[column], number = parseFloat(cell.dataset.value);
      return isNaN(number) ? cell.textContent : number; };
    const order = (a, b) => { const x = key(a), y = key(b);
      return typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1; };
    [...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)).forEach((row) => body.appendChild(row));
    head.dataset.up = up ? "yes" : "no";
  }));
}

document.querySelectorAll("table").forEach(sortable);
if (Object.keys(data.curves).length) {
  ["axis", "metric", "logs"].forEach((name) => document.getElementById(name).addEventListener("change", curves));
  curves();
}
const boxes = data.planes.map(() => box("planes"));  // all of them first: each takes its share of the width
data.planes.forEach((place, index) => plane(place, boxes[index]));
if (data.law) scaling(data.law, box("law"));
"""
