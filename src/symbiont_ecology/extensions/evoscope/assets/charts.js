// A card with an ECharts plot: it is drawn anew when its run, selection or theme changes, a thin line
// follows the slider, and it can be saved as PNG or SVG.

const GRID = { left: 66, right: 18, top: 26, bottom: 40 };

class Chart {
  // `view` is {id, title, unit, width, option(run, state), follows, isTimeless, controls, suits}. A view that
  // `follows` shows one moment, so it is drawn anew when the slider moves; others show all time, or none if they
  // are timeless. Where a view does not suit a run, or has nothing to show (no option), its card is hidden.
  constructor(view, state, main) {
    this.view = view;
    this.state = state;
    this.place = el("div", { class: "chart", role: "img", "aria-label": view.title }, el("div", { class: "plot" }));
    this.cursor = el("div", { class: "cursor", hidden: true });
    this.place.append(this.cursor);
    this.card = card(view, this.controls(), this.place);
    main.append(this.card);
  }

  controls() {
    return [
      ...(this.view.controls?.(() => this.draw(), this.state.run) ?? []),
      ...saveButtons(this.view.title, (form) => this.save(form)),
    ];
  }

  draw() {
    const { run } = this.state,
      option = (this.view.suits?.(run) ?? true) && this.view.option(run, this.state);
    this.card.hidden = !option;
    if (!option) return;
    if (typeof this.view.unit === "function") this.card.querySelector(".unit").textContent = this.view.unit(run);
    if (this.view.height) this.place.style.height = `${this.view.height(run)}px`;
    this.chart ??= this.made();
    this.chart.resize();
    this.option = styled(option);
    this.chart.setOption(this.option, { notMerge: true });
    this.follow();
  }

  made() {
    const chart = echarts.init(this.place.firstChild, null, { renderer: "canvas" });
    chart.on("click", (event) => this.click(event));
    chart.getZr().on("click", (event) => !event.target && this.clickBeside(event));
    new ResizeObserver(() => {
      chart.resize();
      this.follow();
    }).observe(this.place);
    return chart;
  }

  click(event) {
    const { run } = this.state,
      name = event.componentType === "yAxis" ? event.value : event.seriesType === "line" ? event.seriesName : null;
    const pick = event.data?.pick ?? (name === null ? null : run.named(name));
    if (pick) this.state.select(pick);
  }

  // Beside everything, where a view shows all time: to that time.
  clickBeside(event) {
    if (
      this.view.follows ||
      this.view.isTimeless ||
      !this.chart.containPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY])
    )
      return;
    this.state.goTo(Math.round(this.chart.convertFromPixel({ xAxisIndex: 0 }, event.offsetX)));
  }

  // The slider moved.
  follow() {
    if (!this.chart || this.card.hidden || this.view.follows || this.view.isTimeless) return;
    const x = this.chart.convertToPixel({ xAxisIndex: 0 }, this.state.run.generation(this.state.frame));
    const { top, bottom } = this.option.grid ?? GRID;
    this.cursor.hidden = !Number.isFinite(x);
    this.cursor.style.left = `${x}px`;
    this.cursor.style.top = `${top}px`;
    this.cursor.style.bottom = `${bottom}px`;
  }

  save(form) {
    if (!this.chart) return;
    const name = `${this.state.run.name}-${this.view.id}.${form}`;
    if (form === "png") {
      download(name, this.chart.getDataURL({ pixelRatio: 2, backgroundColor: cssColour("--card") }));
      return;
    }
    const width = this.place.clientWidth,
      height = this.place.clientHeight;
    const drawing = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
    drawing.setOption({ ...this.option, backgroundColor: cssColour("--card") });
    download(name, svgUrl(drawing.renderToSVGString()));
    drawing.dispose();
  }
}

function saveButtons(title, save) {
  return ["PNG", "SVG"].map((form) =>
    el(
      "button",
      {
        type: "button",
        title: `save as ${form}`,
        "aria-label": `save ${title} as ${form}`,
        onclick: () => save(form.toLowerCase()),
      },
      form,
    ),
  );
}

function card(view, tools, ...content) {
  return el(
    "section",
    { class: `card ${view.width ?? ""}`, id: `${view.id}-view`, "aria-label": view.title },
    el(
      "header",
      {},
      el("h2", {}, view.title),
      el("span", { class: "unit" }, typeof view.unit === "string" ? view.unit : ""),
      el("span", { class: "tools" }, tools),
    ),
    ...content,
  );
}

// Texts, lines and tips in the colours of the page, and no motion: the slider moves.
function styled(option) {
  const ink = cssColour("--ink"),
    soft = cssColour("--soft"),
    line = cssColour("--line");
  const axis = (one) => ({
    nameTextStyle: { color: soft },
    nameGap: 26,
    nameLocation: "middle",
    ...one,
    axisLabel: { color: soft, hideOverlap: true, ...one.axisLabel },
    axisLine: { lineStyle: { color: soft } },
    splitLine: { lineStyle: { color: line }, ...one.splitLine },
  });
  const axes = (found) => (Array.isArray(found) ? found.map(axis) : found && axis(found));
  return {
    ...option,
    animation: false,
    textStyle: { color: ink, fontFamily: "system-ui, sans-serif" },
    grid: option.grid ?? GRID,
    xAxis: axes(option.xAxis),
    yAxis: axes(option.yAxis),
    legend: option.legend && {
      top: 0,
      type: "scroll",
      itemHeight: 8,
      itemWidth: 14,
      textStyle: { color: ink },
      ...option.legend,
    },
    tooltip: {
      confine: true,
      backgroundColor: cssColour("--card"),
      borderColor: line,
      textStyle: { color: ink, fontSize: 12 },
      ...option.tooltip,
    },
  };
}

function generations(run) {
  return {
    type: "value",
    min: 0,
    max: Math.max(run.generations - 1, 1),
    name: "generation",
    minInterval: 1,
    splitLine: { show: false },
  };
}

// A tip made of lines of text, which are never read as HTML.
function tip(...lines) {
  return el(
    "div",
    {},
    lines.filter(Boolean).map((line) => el("div", {}, plain(line))),
  );
}

function lineSeries(name, points, colour, more = {}) {
  return {
    name,
    type: "line",
    data: points,
    showSymbol: false,
    lineStyle: { width: 1.8, color: colour },
    itemStyle: { color: colour },
    ...more,
  };
}

// Bars in time: rows are {row, from, to, colour, outline, pick, text, strength, label, isLight}.
function barSeries(rows, thickness = 0.86) {
  return {
    type: "custom",
    clip: true,
    encode: { x: [1, 2], y: 0 },
    data: rows.map((one) => ({ value: [one.row, one.from, one.to], pick: one.pick, text: one.text })),
    renderItem: (params, api) => {
      const [left, middle] = api.coord([api.value(1), api.value(0)]),
        [right] = api.coord([api.value(2), api.value(0)]);
      const height = Math.max(thickness * api.size([0, 1])[1], 1);
      const edge = params.coordSys.x + params.coordSys.width,
        width = Math.max(Math.min(right, edge) - left, 1),
        { label, colour, outline, strength, isLight } = rows[params.dataIndex],
        isRoomy = label && height >= 8 && width > 7 * label.length + 6;
      return {
        type: "rect",
        shape: { x: left, y: middle - height / 2, width, height },
        style: { fill: colour, stroke: outline ?? null, lineWidth: 0.5, opacity: strength ?? 1 },
        ...(isRoomy && {
          textContent: { style: { text: label, ...inkOn(isLight), fontSize: Math.min(height, 11), fontWeight: 600 } },
          textConfig: { position: "insideLeft" },
        }),
      };
    },
    tooltip: { formatter: (one) => tip(...one.data.text.split("\n")) },
  };
}

// How a text is painted on a colour that is light, or that may be dark.
function inkOn(isLight) {
  return isLight ? { fill: "#000" } : { fill: "#fff", stroke: "rgba(0,0,0,.6)", lineWidth: 2 };
}

function rowAxis(names, more = {}) {
  return {
    type: "category",
    data: names.map(plain),
    inverse: true,
    triggerEvent: true,
    axisTick: { show: false },
    splitLine: { show: false },
    axisLabel: { fontSize: 11, width: 150, overflow: "truncate" },
    ...more,
  };
}

function download(name, url) {
  const link = el("a", { href: url, download: name.replace(/[^\w.-]+/g, "-") });
  document.body.append(link);
  link.click();
  link.remove();
}

function svgUrl(text) {
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}
