// Runs side by side: curves of all of them, and how sure their differences are.

const compareView = {
  id: "compare", title: "Runs side by side", unit: "every run, smoothed", width: "wide", measure: "right",
  controls(redraw) {
    const options = { right: "right answers, %", population: "organelles alive", energy: "energy of all, ATP", flops: "training FLOPs", coverage: "archive, cells held" };
    return [el("select", { "aria-label": "measure", onchange: (event) => { this.measure = event.target.value; redraw(); } }, Object.entries(options).map(([value, name]) => el("option", { value }, name)))];
  },
  option(_, state) {
    const { runs, record: { comparison } } = state, armOf = new Map(comparison.arms.flatMap((arm, number) => arm.runs.map((run) => [run, { arm, number }])));
    const value = (run, frame) => this.measure === "right" ? smoothShare(run.curves.asked, run.curves.right, frame) : this.measure === "energy" ? run.curves.energy[frame] / 1000 : run.curves[this.measure][frame];
    const longest = runs.reduce((best, run) => (run.generations > best.generations ? run : best));
    return {
      legend: {}, tooltip: { trigger: "axis" }, xAxis: generations(longest), yAxis: { type: "value", min: 0, max: this.measure === "right" ? 100 : null },
      series: runs.map((run, number) => lineSeries(plain(armOf.get(number).arm.name), run.frames.ends.map((generation, frame) => [generation, value(run, frame)]), colourOf(armOf.get(number).number), { lineStyle: { width: 1.6, opacity: 0.8, color: colourOf(armOf.get(number).number) } })),
    };
  },
};

// The table, with a choice of the arm that the others are compared with: at first one of which something can be said.
function comparisonTable(comparison, runs, first = firstKnown(comparison)) {
  const share = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`), signed = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)}`;
  const { arms, pairs } = comparison, pairOf = new Map(pairs.filter((pair) => pair.first === first).map((pair) => [pair.other, pair]));
  const told = (pair) => !pair ? "" : !pair.difference ? pair.over
    : pair.difference.low === pair.difference.high ? `${signed(pair.difference.estimate)} points (${pair.over})`
      : `${signed(pair.difference.estimate)} points [${signed(pair.difference.low)}, ${signed(pair.difference.high)}], over ${pair.over}`;
  const choice = el("select", { "aria-label": "compared arm", onchange: (event) => table.replaceWith(comparisonTable(comparison, runs, +event.target.value)) },
    arms.map((arm, number) => el("option", { value: number, selected: number === first }, plain(arm.name))));
  const table = el("div", { class: "scroll" }, el("table", {},
    el("tr", {}, el("th", {}, "arm"), el("th", {}, "seed numbers"), el("th", { class: "number" }, "right"), el("th", { class: "number" }, "last quarter"), el("th", { class: "number" }, "alive"), el("th", {}, choice, " minus it, last quarter [95 %]")),
    arms.map((arm, number) => el("tr", {}, el("td", {}, el("span", { class: "dot", style: `background:${colourOf(number)}` }), plain(arm.name)), el("td", {}, arm.seeds.join(", ")),
      el("td", { class: "number" }, share(arm.right)), el("td", { class: "number" }, share(arm.late)), el("td", { class: "number" }, arm.runs.map((run) => runs[run].curves.population.at(-1) ?? 0).join(", ")), el("td", {}, told(pairOf.get(number)))))));
  return table;
}

function firstKnown({ arms, pairs }) {
  return Math.max(arms.findIndex((_, number) => pairs.some((pair) => pair.first === number && pair.difference)), 0);
}
