// Descent: a Muller plot of shares through time, and a tree in which merges join.

const MULLER_SHOWN = 40; // organelles with an area of their own

const mullerView = {
  id: "muller",
  title: "Muller plot",
  unit: "share of what is measured; children grow out of their parents",
  measure: "asked",
  suits: (run) => !run.isAlone && !run.hasExams,
  controls(redraw, run) {
    const energy = run.hasEconomy ? { balance: "energy" } : {};
    return [measureList(this, { asked: "answers", right: `${run.yes} answers`, ...energy }, redraw)];
  },
  option(run, state) {
    if (run.last < 1) return null;
    const times = stretches(run, COLUMNS),
      shares = new Map(),
      totals = new Map();
    times.forEach(([first, last], column) => {
      const amounts = amountsOf(run, this.measure, first, last),
        all = [...amounts.values()].reduce((sum, value) => sum + value, 0);
      for (const [id, amount] of amounts) {
        if (!all || !amount) continue;
        if (!shares.has(id)) shares.set(id, new Array(times.length).fill(0));
        shares.get(id)[column] = amount / all;
        totals.set(id, (totals.get(id) ?? 0) + amount / all);
      }
    });
    if (!shares.size) return null;
    const shown = new Set(
      [...totals]
        .sort((a, b) => b[1] - a[1])
        .slice(0, MULLER_SHOWN)
        .map(([id]) => id),
    );
    const others = new Array(times.length).fill(0);
    for (const [id, row] of shares) if (!shown.has(id)) row.forEach((share, column) => (others[column] += share));
    const series = [];
    const area = (id, part, colour) => {
      const row = id === "others" ? others : shares.get(id);
      series.push(
        lineSeries(
          id,
          row.map((share, column) => [run.generation(times[column][1]), +(100 * share * part).toFixed(2)]),
          colour,
          {
            stack: "share",
            areaStyle: { color: colour, opacity: id === "others" ? 0.5 : 0.9 * barStrength(state, id, null) },
            lineStyle: { width: 0.4, color: cssColour("--card") },
            emphasis: { disabled: true },
            triggerLineEvent: true,
          },
        ),
      );
    };
    const grow = (one) => {
      const colour = run.colour(one.id, state.colours),
        hasChildren = one.children.some((child) => hasShown(run, child, shown));
      if (shown.has(one.id)) area(one.id, hasChildren ? 0.5 : 1, colour);
      for (const child of one.children) if (run.byId.get(child).parents[0] === one.id) grow(run.byId.get(child));
      if (shown.has(one.id) && hasChildren) area(one.id, 0.5, colour);
    };
    for (const one of run.organelles) if (!one.parents.some((parent) => run.byId.has(parent))) grow(one);
    if (others.some(Boolean)) area("others", 1, cssColour("--grey"));
    return {
      xAxis: generations(run),
      yAxis: { type: "value", min: 0, max: 100, name: "share, %" },
      series,
      tooltip: {
        trigger: "axis",
        formatter: (rows) => {
          const sums = new Map();
          for (const row of rows) sums.set(row.seriesName, (sums.get(row.seriesName) ?? 0) + row.value[1]);
          const largest = [...sums]
            .filter(([, share]) => share >= 0.5)
            .sort((a, b) => b[1] - a[1])
            .slice(0, 10);
          return tip(`generation ${rows[0].value[0]}`, ...largest.map(([id, share]) => `${id} ${share.toFixed(0)} %`));
        },
      },
    };
  },
};

function amountsOf(run, measure, first, last) {
  if (measure === "balance")
    return new Map(run.alive(last).map((one) => [one.id, Math.max(run.balance(one.id, last), 0)]));
  return new Map(
    [...run.sums(first, last, (row) => run.actor(row))]
      .filter(([id]) => id !== HOST)
      .map(([id, sum]) => [id, sum[measure]]),
  );
}

function hasShown(run, id, shown) {
  return (
    shown.has(id) ||
    run.byId.get(id).children.some((child) => run.byId.get(child).parents[0] === id && hasShown(run, child, shown))
  );
}

const TREE_SHOWN = 400; // lives that a tree has at most

const treeView = {
  id: "tree",
  title: "Lineages",
  unit: "a bar per life, from birth to death; lines come from parents, a merge has several",
  suits: (run) => !run.isAlone,
  height: (run) => Math.min(Math.max(80 + (run.hasExams ? 13 : 9) * inOrder(run).length, 270), 900),
  option(run, state) {
    if (!run.organelles.length || run.last < 0) return null;
    const lives = inOrder(run),
      rows = new Map(lives.map((one, row) => [one.id, row])),
      chosen = state.selection;
    const family = chosen?.type === "organelle" ? kin(run, chosen.id) : null,
      strength = (id) => (!family || family.has(id) ? 1 : 0.25);
    const ink = cssColour("--soft"),
      isScored = state.colours === "score" && run.hasExams;
    const bars = lives.map((one) => ({
      row: rows.get(one.id),
      from: one.born,
      to: one.died ?? run.generations,
      colour: run.colour(one.id, state.colours),
      strength: strength(one.id),
      pick: { type: "organelle", id: one.id },
      text:
        `${one.id}: ${one.operator}, born in generation ${one.born}\n` +
        (one.parents.length ? `of ${one.parents.join(" and ")}\n` : "") +
        (one.died === null ? "alive" : `died in generation ${one.died}: ${one.cause}`) +
        (run.hasExams ? `\nscore ${scoreOf(one)}` : ""),
      label: run.hasExams ? `${one.operator} ${scoreOf(one)}` : null,
      isLight: isScored && isLightScore(run, one.score),
      outline: isScored ? ink : null,
    }));
    const joins = lives.flatMap((one) =>
      one.parents
        .filter((parent) => rows.has(parent))
        .map((parent) => ({
          value: [one.born, rows.get(parent), rows.get(one.id), strength(one.id), one.parents.length],
        })),
    );
    return {
      ...(isScored && { visualMap: scoreScale(run) }),
      grid: { ...GRID, left: 56, top: 8, right: isScored ? 60 : GRID.right },
      xAxis: generations(run),
      yAxis: rowAxis(
        lives.map((one) => one.id),
        { axisLabel: { fontSize: 10, interval: lives.length > 60 ? "auto" : 0, hideOverlap: true } },
      ),
      tooltip: {},
      series: [
        {
          type: "custom",
          data: joins,
          silent: true,
          encode: { x: 0, y: [1, 2] },
          renderItem: (_, api) => {
            const from = api.coord([api.value(0), api.value(1)]),
              to = api.coord([api.value(0), api.value(2)]);
            return {
              type: "line",
              shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] },
              style: {
                stroke: ink,
                lineWidth: api.value(4) > 1 ? 2 : 1,
                opacity: api.value(3),
                lineDash: api.value(4) > 1 ? [4, 3] : null,
              },
            };
          },
        },
        barSeries(bars, 0.62),
      ],
    };
  },
};

// Everyone, children below their first parent; of very many those who answered most, and their ancestors.
function inOrder(run) {
  const kept = run.organelles.filter((one) => !one.isLesser).length > TREE_SHOWN ? busiestWithAncestors(run) : null,
    lives = [];
  const waiting = run.organelles.filter((one) => !run.byId.has(one.parents[0])).reverse();
  while (waiting.length) {
    const one = waiting.pop();
    if (!one.isLesser && (!kept || kept.has(one.id))) lives.push(one);
    for (const child of [...one.children].reverse())
      if (run.byId.get(child).parents[0] === one.id) waiting.push(run.byId.get(child));
  }
  return lives;
}

function busiestWithAncestors(run) {
  const answers = new Map([...run.sums(0, run.last, (row) => run.actor(row))].map(([id, sum]) => [id, sum.asked])),
    kept = new Set();
  for (const { id } of run.organelles
    .filter((one) => !one.isLesser)
    .sort((a, b) => (answers.get(b.id) ?? 0) - (answers.get(a.id) ?? 0))) {
    const line = [];
    for (let one = run.byId.get(id); one && !kept.has(one.id); one = run.byId.get(one.parents[0])) line.push(one.id);
    if (kept.size + line.length <= TREE_SHOWN) for (const member of line) kept.add(member);
  }
  return kept;
}

// An organelle, its ancestors and its descendants.
function kin(run, id) {
  const found = new Set([id]);
  for (const next of [(one) => one.parents, (one) => one.children]) {
    const waiting = [id];
    while (waiting.length)
      for (const other of next(run.byId.get(waiting.pop()) ?? { parents: [], children: [] }))
        if (!found.has(other)) {
          found.add(other);
          waiting.push(other);
        }
  }
  return found;
}
