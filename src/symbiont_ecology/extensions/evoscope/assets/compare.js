// Runs side by side: curves of all of them.

const compareView = {
  id: "compare",
  title: "Runs side by side",
  unit: "every run, smoothed",
  width: "wide",
  measure: "right",
  controls(redraw, run) {
    const options = {
      right: `${run.yes} answers, %`,
      population: "organelles alive",
      energy: "energy of all, ATP",
      flops: "training FLOPs",
      coverage: "archive, cells held",
    };
    return [measureList(this, options, redraw)];
  },
  option(_, state) {
    const { runs } = state;
    const value = (run, frame) =>
      this.measure === "right"
        ? smoothShare(run.curves.asked, run.curves.right, frame)
        : this.measure === "energy"
          ? run.curves.energy[frame] / 1000
          : run.curves[this.measure][frame];
    const longest = runs.reduce((best, run) => (run.generations > best.generations ? run : best));
    return {
      legend: {},
      tooltip: { trigger: "axis" },
      xAxis: generations(longest),
      yAxis: { type: "value", min: 0, max: this.measure === "right" ? 100 : null },
      series: runs.map((run, number) =>
        lineSeries(
          plain(run.name),
          run.frames.ends.map((generation, frame) => [generation, value(run, frame)]),
          colourOf(number),
          { lineStyle: { width: 1.6, opacity: 0.8, color: colourOf(number) } },
        ),
      ),
    };
  },
};
