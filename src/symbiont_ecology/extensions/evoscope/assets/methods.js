// Views of methods without an economy: steps of evolution strategies, and selection by exams.

const GENES_SHOWN = 30; // variants in the table of genes
const SCORE_FORM = (value) => (Number.isFinite(value) ? value.toFixed(3) : "–");

// The mean, the best (dashed), and a band from the 20th to the 80th percentile.
function bandOption(run, rows, name) {
  const at = (of) => rows.map((one) => [one.generation, +of(one).toPrecision(6)]),
    showSymbol = rows.length < 2,
    colour = colourOf(0);
  const edge = { stack: "band", stackStrategy: "all", lineStyle: { opacity: 0 }, silent: true };
  return {
    legend: { data: ["mean", "best", { name: BAND_NAME, icon: "rect" }] },
    xAxis: generations(run),
    yAxis: { type: "value", name, scale: true },
    tooltip: {
      trigger: "axis",
      formatter: ([{ dataIndex }]) => {
        const { generation, mean, low, high, best } = rows[dataIndex];
        return tip(
          `generation ${Math.round(generation)}`,
          `mean ${SCORE_FORM(mean)}, best ${SCORE_FORM(best)}`,
          `${BAND_NAME}: ${SCORE_FORM(low)} to ${SCORE_FORM(high)}`,
        );
      },
    },
    series: [
      lineSeries(
        "low",
        at((one) => one.low),
        colour,
        edge,
      ),
      lineSeries(
        BAND_NAME,
        at((one) => one.high - one.low),
        colour,
        { ...edge, areaStyle: { color: colour, opacity: 0.25 } },
      ),
      lineSeries(
        "mean",
        at((one) => one.mean),
        colour,
        { showSymbol },
      ),
      lineSeries(
        "best",
        at((one) => one.best),
        colourOf(3),
        { showSymbol, lineStyle: { type: "dashed", width: 1.5, color: colourOf(3) } },
      ),
    ],
  };
}

const BAND_NAME = "20th to 80th percentile";

const rewardsView = {
  id: "rewards",
  title: "Rewards of the members",
  unit: "the mean reward of each, over the population",
  width: "fill",
  suits: (run) => run.ascents.length,
  option: (run) => bandOption(run, run.ascents, "reward"),
};

const looksView = {
  id: "looks",
  title: "The centre and the bare host",
  unit: "right answers in %, to the same questions at every look",
  suits: (run) => run.ascents.length && run.looks.length,
  option(run) {
    const line = (name, number, symbol) =>
      lineSeries(
        name === "centre" ? "centre" : "bare host",
        run.looks.map((one) => [one.generation, +(100 * one[name]).toFixed(1)]),
        colourOf(number),
        { showSymbol: true, symbol, symbolSize: 7 },
      );
    return {
      legend: {},
      xAxis: generations(run),
      yAxis: { type: "value", min: 0, max: 100, name: "right, %" },
      series: [line("centre", 0, "circle"), line("host", 1, "diamond")],
      tooltip: {
        trigger: "axis",
        formatter: ([{ dataIndex }]) => {
          const one = run.looks[dataIndex];
          return tip(
            `generation ${one.generation}, ${one.questions} questions`,
            `centre ${Math.round(100 * one.centre)} % right`,
            `bare host ${Math.round(100 * one.host)} % right`,
          );
        },
      },
    };
  },
};

// Two lines with an axis each: {name, axis, of, form} of a step.
function pairOption(run, left, right) {
  const line = ({ name, of }, number) =>
    lineSeries(
      name,
      run.ascents.map((one) => [one.generation, +of(one).toPrecision(4)]),
      colourOf(number),
      { yAxisIndex: number, showSymbol: run.ascents.length < 2 },
    );
  return {
    legend: {},
    tooltip: { trigger: "axis" },
    xAxis: generations(run),
    grid: { ...GRID, right: 60 },
    yAxis: [left, right].map(({ axis, most }, number) => ({
      type: "value",
      min: 0,
      max: most,
      name: axis,
      splitLine: { show: !number },
      nameGap: 36,
    })),
    series: [line(left, 0), line(right, 1)],
  };
}

const guardsView = {
  id: "guards",
  title: "Length of answers, and empty ones",
  unit: "of all members; a reward can be cheated by either",
  suits: (run) => run.ascents.length,
  option: (run) =>
    pairOption(
      run,
      { name: "mean length", axis: "tokens", of: (one) => one.tokens },
      { name: "without text", axis: "without text, %", of: (one) => 100 * one.empty, most: 100 },
    ),
};

const stepsView = {
  id: "steps",
  title: "Step and noise",
  unit: "the step per number, in units of the noise; noise on ΔW, in % of ‖W‖",
  suits: (run) => run.ascents.length,
  option: (run) =>
    pairOption(
      run,
      { name: "step", axis: "step ÷ noise", of: (one) => one.step },
      { name: "noise", axis: "noise, %", of: (one) => 100 * one.noise },
    ),
};

const scoresView = {
  id: "scores",
  title: "Scores",
  unit: "of everyone alive, at every exam",
  width: "fill",
  suits: (run) => run.lives.length,
  option: (run) => bandOption(run, run.lives, "score"),
};

const sigmaView = {
  id: "sigma",
  title: "Inherited size of mutations",
  unit: "a dot per newborn, light where it scored well; the line is the mean of the living",
  suits: (run) => run.organelles.some((one) => one.traits.sigma),
  option(run) {
    const dots = run.organelles
      .filter((one) => one.traits.sigma)
      .map((one) => ({
        value: [one.born, one.traits.sigma],
        itemStyle: { color: run.scoreColour(one.score) },
        pick: { type: "organelle", id: one.id },
        text: `${one.id}: sigma ${short(one.traits.sigma)}, score ${scoreOf(one)}`,
      }));
    const means = run.frames.ends
      .map((generation, frame) => [
        generation,
        run
          .alive(frame)
          .map((one) => one.traits.sigma)
          .filter(Boolean),
      ])
      .filter(([, found]) => found.length);
    return {
      legend: {},
      xAxis: generations(run),
      yAxis: {
        type: "log",
        logBase: 2,
        name: "sigma",
        axisLabel: { formatter: (value) => short(value) },
        ...logRange(dots.map((one) => one.value[1])),
      },
      series: [
        {
          name: "newborns",
          type: "scatter",
          symbolSize: 6,
          data: dots,
          itemStyle: { color: cssColour("--grey") },
          tooltip: { formatter: (one) => tip(one.data.text) },
        },
        lineSeries(
          "mean of the living",
          means.map(([generation, found]) => [
            generation,
            +(found.reduce((sum, one) => sum + one, 0) / found.length).toPrecision(4),
          ]),
          colourOf(3),
        ),
      ],
      tooltip: { formatter: (one) => tip(`generation ${one.value[0]}: ${short(one.value[1])}`) },
    };
  },
};

// The ends of a logarithmic axis: a little beyond the numbers on it.
function logRange(numbers) {
  const { least, most } = extentOf(numbers);
  return { min: +(0.9 * least).toPrecision(2), max: +(1.1 * most).toPrecision(2) };
}

// A row per variant, the best first; genes as text on the colour of the score.
const genesView = {
  id: "genes",
  title: "Hyper-parameters",
  unit: "a row per variant, the best first; the colour of a row is its score",
  width: "wide",
  isTimeless: true,
  suits: areTrainings,
  height: (run) => 75 + 19 * Math.min(run.examined.length, GENES_SHOWN),
  option(run) {
    const rows = [...run.examined].sort((a, b) => b.score - a.score).slice(0, GENES_SHOWN),
      columns = [...geneNames(run), "right", "score"];
    const isNarrow = innerWidth < 600,
      fontSize = isNarrow ? 9 : 11;
    const text = (one, name) =>
      name === "score"
        ? SCORE_FORM(one.score)
        : name === "right"
          ? Number.isFinite(one.accuracy)
            ? `${Math.round(100 * one.accuracy)} %`
            : "–"
          : (one.genes[name] ?? "–");
    const data = rows.flatMap((one, row) =>
      columns.map((name, column) => ({
        value: [column, row, one.score],
        pick: { type: "organelle", id: one.id },
        text: text(one, name),
        id: one.id,
        name,
        label: { color: isLightScore(run, one.score) ? "#000" : "#fff" },
      })),
    );
    return {
      grid: { left: 46, right: isNarrow ? 8 : 60, top: 44, bottom: 8 },
      xAxis: {
        type: "category",
        data: columns,
        position: "top",
        splitLine: { show: false },
        axisLabel: { interval: 0, hideOverlap: false, rotate: isNarrow ? 35 : 0 },
      },
      yAxis: rowAxis(rows.map((one) => one.id)),
      visualMap: { ...scoreScale(run), dimension: 2, seriesIndex: 0, show: !isNarrow },
      series: [
        {
          type: "heatmap",
          data,
          itemStyle: { borderColor: cssColour("--card"), borderWidth: 1 },
          label: { show: true, fontSize, formatter: (one) => one.data.text },
        },
      ],
      tooltip: {
        formatter: ({ data: one }) => tip(`${one.id}: ${one.name} ${one.text}`, `score ${SCORE_FORM(one.value[2])}`),
      },
    };
  },
};

// Whether what is examined are trainings, with hyper-parameters for genes.
function areTrainings(run) {
  return geneNames(run).includes("modules");
}

function geneNames(run) {
  return [...new Set(run.examined.flatMap((one) => Object.keys(one.genes)))];
}

const PHASES = { training: 0, "after it": 2 };

// When everybody trained, sat the exam and stayed.
const livesView = {
  id: "lives",
  title: "Lives",
  unit: "from birth to exam a variant trains; it stays until others are better",
  width: "wide",
  suits: areTrainings,
  height: (run) => Math.min(Math.max(110 + 9 * inOrderOfBirth(run).length, 270), 900),
  option(run) {
    const shown = inOrderOfBirth(run);
    const bars = shown.flatMap((one, row) => {
      const end = one.died ?? run.generations,
        exam = one.examined ?? end,
        pick = { type: "organelle", id: one.id };
      const told = (what, from, to) => `${one.id} ${what}\ngenerations ${from} to ${to}\nscore ${scoreOf(one)}`;
      return [
        { row, from: one.born, to: exam, colour: colourOf(0), pick, text: told("in training", one.born, exam) },
        { row, from: exam, to: end, colour: colourOf(2), pick, text: told("after its exam", exam, end) },
      ].filter((bar) => bar.to > bar.from);
    });
    const marks = (name, number, symbol, of) => ({
      name,
      type: "scatter",
      symbol,
      symbolSize: 7,
      itemStyle: { color: colourOf(number) },
      data: shown.map((one, row) => [of(one), row]).filter(([generation]) => Number.isFinite(generation)),
      tooltip: { formatter: (point) => tip(`${shown[point.value[1]].id}: ${name} in generation ${point.value[0]}`) },
    });
    return {
      legend: { data: [...Object.keys(PHASES), "exam", "eliminated"] },
      grid: { ...GRID, left: 56 },
      xAxis: generations(run),
      tooltip: {},
      yAxis: rowAxis(
        shown.map((one) => one.id),
        { axisLabel: { fontSize: 10, interval: shown.length > 60 ? "auto" : 0, hideOverlap: true } },
      ),
      series: [
        barSeries(bars, 0.7),
        ...Object.entries(PHASES).map(([name, number]) => ({
          name,
          type: "bar",
          data: [],
          itemStyle: { color: colourOf(number) },
        })),
        marks("exam", 1, "circle", (one) => (one.examined === one.died ? NaN : one.examined)),
        marks("eliminated", 3, "diamond", (one) => one.died ?? NaN),
      ],
    };
  },
};

function inOrderOfBirth(run) {
  return run.organelles.slice(-TREE_SHOWN);
}

// Whether the colour of a score is so light that text on it is dark.
function isLightScore(run, score) {
  return Number.isFinite(score) && partOf(score, run.scores) > 0.5;
}

function scoreOf(one) {
  return SCORE_FORM(one.score);
}

// What the colours of scores stand for.
function scoreScale(run) {
  return colourScale(run.scores.least, run.scores.most, SCORE_FORM, { seriesIndex: [] });
}

const methodViews = [rewardsView, scoresView, looksView, guardsView, stepsView, sigmaView, genesView, livesView];
