// What the plots show. A view's `option` is an ECharts option, or null where there is nothing.

const COLUMNS = 120; // that a map over time has at most
const MOST_MARKS = 80; // births and deaths that a curve can show
const SCALE = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"]; // cividis (Nuñez et al. 2018)

const curvesView = {
  id: "curves",
  title: "Answers and population",
  unit: (run) => `${run.yes} answers in %, smoothed; organelles alive; dotted: the world changes`,
  option(run) {
    if (run.last < 1) return null; // a point is no curve
    const { asked, right, population, births, deaths } = run.curves,
      ends = run.frames.ends;
    const points = (of) => ends.map((generation, frame) => [generation, of(frame)]);
    const changes = run.news.filter((one) => one.kind === "world");
    const isQuiet = births.concat(deaths).filter(Boolean).length <= MOST_MARKS;
    const marks = changes.slice(0, 12).map((one) => ({ xAxis: one.generation }));
    return {
      legend: {},
      xAxis: generations(run),
      grid: run.isAlone ? GRID : { ...GRID, right: 46 },
      tooltip: {
        trigger: "axis",
        formatter: ([
          {
            value: [generation],
          },
        ]) => {
          const frame = run.frameOf(generation);
          const share = asked[frame] ? Math.round((100 * right[frame]) / asked[frame]) : "–";
          return tip(
            `generation ${generation}`,
            `${share} % of ${asked[frame]} answers ${run.yes}`,
            `${population[frame]} alive, ${births[frame]} born, ${deaths[frame]} died`,
          );
        },
      },
      yAxis: [
        { type: "value", min: 0, max: 100, name: `${run.yes}, %` },
        { type: "value", min: 0, name: "organelles", minInterval: 1, splitLine: { show: false } },
      ].slice(0, run.isAlone ? 1 : 2),
      series: [
        lineSeries(
          `${run.yes}, %`,
          points((frame) => smoothShare(asked, right, frame)),
          colourOf(0),
          {
            markLine: {
              silent: true,
              symbol: "none",
              label: { show: false },
              lineStyle: { type: "dotted", width: 1.5, color: cssColour("--ink") },
              data: marks,
            },
          },
        ),
        lineSeries(
          "alive",
          points((frame) => population[frame]),
          colourOf(1),
          { yAxisIndex: 1, step: "end" },
        ),
        {
          name: "births",
          type: "scatter",
          yAxisIndex: 1,
          symbol: "triangle",
          symbolSize: 7,
          itemStyle: { color: colourOf(2) },
          data: points((frame) => population[frame]).filter((_, frame) => isQuiet && births[frame]),
        },
        {
          name: "deaths",
          type: "scatter",
          yAxisIndex: 1,
          symbol: "diamond",
          symbolSize: 7,
          itemStyle: { color: colourOf(3) },
          data: points((frame) => population[frame]).filter((_, frame) => isQuiet && deaths[frame]),
        },
      ].slice(0, run.isAlone ? 1 : 4),
    };
  },
};

// Right answers in % over some frames around one.
function smoothShare(asked, right, frame, reach = 3) {
  let all = 0,
    good = 0;
  for (let near = Math.max(frame - reach, 0); near <= Math.min(frame + reach, asked.length - 1); near++) {
    all += asked[near];
    good += right[near];
  }
  return all ? +((100 * good) / all).toFixed(1) : null;
}

const serversView = {
  id: "servers",
  title: "Who serves whom",
  width: "wide",
  unit: "a row per user (or cell), a colour per organelle: who answered most there",
  suits: (run) => !run.isAlone && !run.hasExams,
  height: (run) => Math.min(Math.max(110 + 11 * (run.hasUsers ? run.users : run.cells).length, 200), 640),
  option(run, state) {
    const rows = run.hasUsers ? sortedUsers(run) : [...run.cells].sort();
    if (!rows.length) return null;
    const bars = run.hasUsers ? servingBars(run, rows, state) : actingBars(run, rows, state);
    return {
      grid: { ...GRID, left: run.hasUsers ? 56 : 150, top: 10 },
      xAxis: generations(run),
      yAxis: rowAxis(rows),
      series: [barSeries(bars)],
      tooltip: {},
    };
  },
};

// Users of one kind beside each other, as far as kinds are known.
function sortedUsers(run) {
  const last = (name) => run.kind(name, run.last) ?? -1;
  return [...run.users].sort((a, b) => last(a) - last(b) || byNumber(a, b));
}

function servingBars(run, rows, state) {
  return rows.flatMap((user, row) => {
    const moves = run.moves.get(user) ?? [];
    return moves
      .filter((move) => move.id)
      .map((move) => {
        const place = moves.indexOf(move),
          until = moves[place + 1]?.generation ?? run.generations;
        const kind = run.kind(user, run.frameOf(move.generation));
        return {
          row,
          from: move.generation,
          to: until,
          colour: run.colour(move.id, state.colours),
          strength: barStrength(state, move.id, user),
          pick: { type: "organelle", id: move.id },
          label: move.id,
          text:
            `user ${user} is served by ${move.id}\ngenerations ${move.generation} to ${until - 1}` +
            (kind === null ? "" : `\nhidden kind ${kind}`),
        };
      });
  });
}

// For each cell, the organelle with most answers in each stretch of time.
function actingBars(run, rows, state) {
  const places = new Map(rows.map((cell, row) => [cell, row])),
    bars = [];
  const open = new Map();
  for (const [first, last] of stretches(run)) {
    const best = new Map();
    for (const [key, sum] of run.sums(first, last, (row) => `${run.cells[run.acts.cell[row]]}\n${run.actor(row)}`)) {
      const [cell, id] = key.split("\n");
      if (!best.has(cell) || sum.asked > best.get(cell).asked) best.set(cell, { id, asked: sum.asked });
    }
    for (const [cell, { id }] of best) {
      const from = run.generation(first - 1) + (first ? 1 : 0),
        to = run.generation(last) + 1,
        before = open.get(cell);
      if (before && before.id === id && before.to === from) before.to = to;
      else {
        const bar = { row: places.get(cell), cell, id, from, to };
        open.set(cell, bar);
        bars.push(bar);
      }
    }
  }
  return bars.map((bar) => ({
    ...bar,
    colour: run.colour(bar.id, state.colours),
    strength: barStrength(state, bar.id, bar.cell),
    pick: { type: "organelle", id: bar.id },
    label: bar.id,
    text: `${bar.cell}: ${bar.id} answers most\ngenerations ${bar.from} to ${bar.to - 1}`,
  }));
}

function barStrength(state, id, place) {
  const chosen = state.selection;
  if (!chosen) return 1;
  return chosen.id === (chosen.type === "organelle" ? id : place) ? 1 : 0.35;
}

// Frames in at most so many stretches: [first, last] each.
function stretches(run, most = COLUMNS) {
  const width = Math.max(1, Math.ceil((run.last + 1) / most)),
    found = [];
  for (let first = 0; first <= run.last; first += width) found.push([first, Math.min(first + width - 1, run.last)]);
  return found;
}

const cellsView = {
  id: "cells",
  title: "By cell and by user",
  unit: (run) => `${run.yes} answers or demand through time`,
  measure: "right",
  rows: "cell",
  controls(redraw, run) {
    const measures = { right: `${run.yes}, %`, asked: "asked" };
    const choice = (key, options) =>
      el(
        "select",
        {
          "aria-label": key,
          onchange: (event) => {
            this[key] = event.target.value;
            redraw();
          },
        },
        Object.entries(options).map(([value, text]) => el("option", { value }, text)),
      );
    return [choice("measure", measures), run.hasUsers ? choice("rows", { cell: "cells", user: "users" }) : []];
  },
  height: (run) => Math.min(Math.max(130 + 14 * run.cells.length, 270), 520),
  option(run, state) {
    const isUser = this.rows === "user" && run.hasUsers,
      names = isUser ? sortedUsers(run) : [...run.cells].sort();
    if (!names.length) return null;
    const list = isUser ? run.acts.users : run.cells,
      column = isUser ? run.acts.user : run.acts.cell;
    const places = new Map(names.map((name, row) => [name, row])),
      data = [];
    for (const [first, last] of stretches(run, 60)) {
      const from = run.generation(first - 1) + (first ? 1 : 0),
        to = run.generation(last) + 1;
      for (const [name, sum] of run.sums(first, last, (row) => (column[row] < 0 ? null : list[column[row]]))) {
        const value = this.measure === "right" ? (100 * sum.right) / sum.asked : sum.asked;
        data.push({
          row: places.get(name),
          from,
          to,
          value,
          pick: { type: isUser ? "user" : "cell", id: name },
          text: `${name}\ngenerations ${from} to ${to - 1}\n${percent(sum)} of ${sum.asked} answers ${run.yes}`,
        });
      }
    }
    const most = this.measure === "right" ? 100 : Math.max(...data.map((one) => one.value)),
      least = 0;
    for (const one of data) {
      one.colour = scaleColour(most > least ? (one.value - least) / (most - least) : 1);
      one.strength =
        state.selection?.id === names[one.row] || !state.selection || state.selection.type === "organelle" ? 1 : 0.5;
    }
    return {
      grid: { ...GRID, left: isUser ? 56 : 150, right: 60, top: 10 },
      xAxis: generations(run),
      yAxis: rowAxis(names),
      series: [barSeries(data, 0.94)],
      tooltip: {},
      visualMap: colourScale(least, most, (value) => value.toFixed(value && value < 10 ? 1 : 0), { seriesIndex: [] }),
    };
  },
};

// The scale beside a chart that says what its colours stand for.
function colourScale(least, most, text, more = {}) {
  return {
    type: "continuous",
    min: least,
    max: Math.max(most, least + 1e-9),
    inRange: { color: SCALE },
    orient: "vertical",
    right: 0,
    top: "middle",
    itemHeight: 90,
    itemWidth: 8,
    calculable: false,
    text: [text(most), text(least)],
    textStyle: { color: cssColour("--soft") },
    ...more,
  };
}

function scaleColour(part) {
  const at = Math.min(Math.max(part, 0), 1) * (SCALE.length - 1),
    low = Math.min(Math.floor(at), SCALE.length - 2);
  const [from, to] = [SCALE[low], SCALE[low + 1]].map((hex) =>
    [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16)),
  );
  return `rgb(${from.map((value, index) => Math.round(mix(value, to[index], at - low))).join(",")})`;
}

const archiveView = {
  id: "archive",
  suits: (run) => !run.isAlone && !run.hasUsers, // who serves a user is shown elsewhere
  title: "Archive",
  unit: "who holds each cell at the slider, by the success rate when it was taken",
  follows: true,
  option(run, state) {
    const held = [...run.holders(state.frame).values()].filter((claim) => claim.id);
    if (!held.length) return null;
    const parts = (name) => [familyOf(name), name.slice(familyOf(name).length + 1)];
    const rows = [...new Set(held.map((claim) => parts(claim.cell)[0]))].sort(byNumber),
      columns = [...new Set(held.map((claim) => parts(claim.cell)[1]))].sort(byNumber);
    return {
      grid: { left: 120, right: 60, top: 10, bottom: 40 },
      xAxis: {
        type: "category",
        data: columns,
        name: "depth",
        splitLine: { show: false },
      },
      yAxis: rowAxis(rows, { splitLine: { show: false } }),
      visualMap: colourScale(0, 1, String),
      series: [
        {
          type: "heatmap",
          label: { show: held.length <= 60, formatter: (one) => one.data.pick.id, fontSize: 11 },
          data: held.map((claim) => ({
            value: [columns.indexOf(parts(claim.cell)[1]), rows.indexOf(parts(claim.cell)[0]), +claim.score.toFixed(3)],
            pick: { type: "organelle", id: claim.id },
            claim,
            label: { color: claim.score > 0.5 ? "#000" : "#fff" },
          })),
        },
      ],
      tooltip: {
        formatter: (one) =>
          tip(
            `${one.data.claim.cell}: ${one.data.claim.id}`,
            `success rate ${one.data.claim.score.toFixed(2)}, taken in generation ${one.data.claim.generation}`,
          ),
      },
    };
  },
};

const ranksView = {
  id: "ranks",
  suits: (run) => !run.isAlone,
  title: "Ranks and parameters",
  unit: "organelles by rank; sum of ranks",
  option(run) {
    if (run.last < 1 || !run.organelles.some((one) => one.ranks.length)) return null;
    const shown = stretches(run, COLUMNS).map(([, last]) => last),
      counts = shown.map((frame) => run.alive(frame).map((one) => run.rank(one, frame)));
    const ranks = [...new Set(counts.flat())].sort((a, b) => a - b),
      body = run.organelles.find((one) => one.body)?.body;
    const each = body ? body.parameters / body.rank : null,
      x = (place) => run.generation(shown[place]);
    return {
      legend: {
        data: [...ranks.map((rank) => ({ name: `rank ${rank}`, icon: "rect" })), each ? "parameters" : "sum of ranks"],
      },
      tooltip: { trigger: "axis" },
      grid: { ...GRID, right: 54 },
      xAxis: generations(run),
      yAxis: [
        { type: "value", name: "organelles", minInterval: 1 },
        {
          type: "value",
          name: each ? "parameters, thousands" : "sum of ranks",
          splitLine: { show: false },
          nameGap: 36,
        },
      ],
      series: [
        ...ranks.map((rank, number) =>
          lineSeries(
            `rank ${rank}`,
            counts.map((all, place) => [x(place), all.filter((one) => one === rank).length]),
            colourOf(number),
            { stack: "ranks", areaStyle: { opacity: 0.7 }, step: "end", lineStyle: { width: 0 } },
          ),
        ),
        lineSeries(
          each ? "parameters" : "sum of ranks",
          counts.map((all, place) => [
            x(place),
            +(all.reduce((sum, rank) => sum + rank, 0) * (each ? each / 1000 : 1)).toFixed(1),
          ]),
          cssColour("--ink"),
          { yAxisIndex: 1, step: "end" },
        ),
      ],
    };
  },
};

const energyView = {
  id: "energy",
  title: "Where energy came from and went",
  unit: "ATP, from the start to the slider; debts are not drawn",
  width: "wide",
  follows: true,
  height: () => 330,
  suits: (run) => run.hasEconomy,
  option(run, state) {
    const now = run.generation(state.frame),
      sums = new Map();
    const sum = (id) =>
      sums.get(id) ??
      sums
        .set(id, { revenue: 0, cost: 0, rent: 0, ticket: 0, founded: 0, received: 0, given: 0, estate: 0, held: 0 })
        .get(id);
    for (const [id, books] of run.books)
      for (let row = 0; row < books.frame.length && books.frame[row] <= state.frame; row++)
        for (const name of ["revenue", "cost", "rent", "ticket"]) sum(id)[name] += books[name][row];
    for (const one of run.transfers) {
      if (one.generation > now) continue;
      if (one.kind === "estate") sum(one.source).estate += one.amount;
      else if (one.source === "world") sum(one.target).founded += one.amount;
      else {
        sum(one.source).given += one.amount;
        sum(one.target).received += one.amount;
      }
    }
    for (const one of run.organelles)
      if (run.isAlive(one, state.frame) && sums.has(one.id)) sum(one.id).held = run.balance(one.id, state.frame);
    for (const [id, one] of sums)
      // What is put aside for those on trial.
      if (!run.byId.has(id) || run.byId.get(id).born > now) one.held = one.received - one.given - one.estate;
    if (!sums.size) return null;
    return sankey(run, state, sums);
  },
};

// Sources on the left, the organelles with the largest flows in the middle, uses on the right.
function sankey(run, state, sums) {
  const ranked = [...sums].sort((a, b) => b[1].revenue - a[1].revenue),
    all = ranked.reduce((sum, [, one]) => sum + one.revenue, 0);
  const shown = new Set(
    ranked
      .slice(0, 10)
      .filter(([, one]) => one.revenue >= 0.02 * all)
      .map(([id]) => id),
  );
  const groups = new Map();
  for (const [id, one] of ranked) {
    const name = shown.has(id) ? id : "others",
      group = groups.get(name) ?? groups.set(name, {}).get(name);
    for (const [key, value] of Object.entries(one)) group[key] = (group[key] ?? 0) + value;
  }
  const flows = [
    [`${run.yes} answers`, "revenue", true],
    ["from the world, to founders", "founded", true],
    ["from parents (moved)", "received", true],
    ["compute", "cost", false],
    ["rent of weights", "rent", false],
    ["tickets", "ticket", false],
    ["to children (moved)", "given", false],
    ["left by the dead", "estate", false],
    ["held", "held", false],
  ];
  const links = [],
    used = new Set(),
    isNarrow = innerWidth < 600;
  for (const [name, group] of groups)
    for (const [end, key, isSource] of flows) {
      const amount = group[key] / 1000;
      if (!(amount > 0)) continue; // debts of the dead are not drawn
      links.push({ source: isSource ? end : name, target: isSource ? name : end, value: +amount.toFixed(2) });
      used.add(end).add(name);
    }
  const nodes = [...used].map((name) => {
    const isOrganelle = groups.has(name);
    const isSource = flows.some(([end, , comesIn]) => end === name && comesIn);
    return {
      name,
      ...(isNarrow && isSource && { label: { width: 70, overflow: "break", lineHeight: 12 } }),
      depth: isOrganelle ? 1 : isSource ? 0 : 2,
      itemStyle: { color: isOrganelle && name !== "others" ? run.colour(name, state.colours) : cssColour("--grey") },
      pick: isOrganelle && name !== "others" ? { type: "organelle", id: name } : null,
    };
  });
  return {
    series: [
      {
        type: "sankey",
        data: nodes,
        links,
        top: 10,
        bottom: 10,
        left: 10,
        right: isNarrow ? 110 : 170,
        nodeGap: 8,
        emphasis: { focus: "adjacency" },
        label: {
          color: cssColour("--ink"),
          fontSize: isNarrow ? 9 : 11,
          formatter: (one) => `${one.name}  ${short(+one.value)}`,
        },
        lineStyle: { color: "gradient", opacity: 0.35 },
      },
    ],
    tooltip: {
      formatter: (one) =>
        tip(
          one.dataType === "edge"
            ? `${one.data.source} → ${one.data.target}: ${one.value} ATP`
            : `${one.name}: ${(+one.value).toFixed(1)} ATP`,
        ),
    },
  };
}
