// The page: one moment, one selection, and every view that shows them.

const SECONDS = 24; // that a whole run takes at speed 1
const WORDS = {
  organelle: "a LoRA adapter that lives on the frozen host",
  ATP: "energy: answers that are right or accepted earn it, compute, weights and tickets cost it",
  ticket: "what it costs to take part in a generation",
  dowry: "a newborn's first energy, from its parents or the world",
  founder:
    "an organelle without living parents; a coloniser is founded for users, a pioneer after an upheaval, " +
    "one that is refounded has weights of the dead",
  trial: "a child of several parents answers the same questions as its parents, and takes over if it is proven",
  cell: "a family of tasks at a depth",
  "marks above the slider":
    "births and merges are green, deaths red, changes of the world black, changes that were noticed pink",
};
const KEYS = {
  space: "play or pause",
  "← →": "a step back or on (with Shift ten)",
  "Home End": "first or last generation",
  "j k": "next or previous organelle",
  "/": "search",
  Esc: "select nothing",
  t: "light or dark",
  "?": "this list",
};

class Page {
  constructor(record) {
    this.frame = 0;
    this.moment = 0; // of the canvas: a frame and a part of the way to the next
    this.selection = null;
    this.query = "";
    this.colours = "own";
    this.isPlaying = false;
    this.speed = 1;
    this.take(record);
    this.colours = this.run.bestColours;
    this.build();
    byName("colours").value = this.colours;
    this.fromAddress();
    this.bind();
    this.drawAll();
    if (record.live) this.listen();
  }

  // A record, new or grown.
  take(record) {
    const wasAtEnd = !this.run || this.frame === this.run.last,
      number = this.run ? this.runs.indexOf(this.run) : 0;
    const before = this.run?.generation(this.frame) ?? 0,
      reached = this.run?.generation(Math.floor(this.moment)) ?? 0;
    this.record = record;
    this.runs = record.runs.map((run) => new RunView(run));
    this.run = this.runs[number];
    this.frame = Math.max(wasAtEnd && !this.isPlaying ? this.run.last : this.run.frameOf(before), 0);
    this.moment = this.isPlaying ? Math.max(this.run.frameOf(reached), 0) : this.frame;
  }

  build() {
    const main = byName("views");
    this.panels = new Panels(this, this.record.newsKinds);
    this.canvas = el("canvas", { role: "img", "aria-label": "organelles as bodies, users as dots around them" });
    const title = "The living population",
      save = saveButtons(title, (form) => this.saveCanvas(form));
    main.append(
      card(
        { id: "canvas", title, unit: "size: energy; ringed dots: users; dashed: on trial" },
        save,
        el("div", { class: "chart" }, this.canvas),
        (this.legend = el("p", { class: "chips soft" })),
      ),
    );
    this.living = new LivingCanvas(this.canvas, this);
    this.places = {};
    const panel = (id, title, unit, width) =>
      main.append(
        card(
          { id, title, unit, width },
          [],
          (this.places[id] = el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title })),
        ),
      );
    panel("biography", "What is selected", "a run, an organelle, a user or a cell");
    const views = [
      ...methodViews,
      serversView,
      curvesView,
      mullerView,
      treeView,
      cellsView,
      energyView,
      archiveView,
      ranksView,
    ];
    if (this.runs.length > 1) views.unshift(compareView);
    this.charts = views.map((view) => new Chart(view, this, main));
    panel("trials", "Trials", "who challenged whom, and what decided", "wide");
    panel("news", "What happened", "up to the slider; a click on a kind hides or shows it", "wide");
    panel(
      "replies",
      "Replies",
      "up to the slider; with words of the search; a question may be answered several times",
      "wide",
    );
    this.picker();
  }

  picker() {
    const select = byName("run");
    select.replaceChildren(...this.runs.map((run, number) => el("option", { value: number }, plain(run.name))));
    select.value = this.runs.indexOf(this.run);
    byName("run-picker").hidden = this.runs.length < 2;
    byName("names").replaceChildren(
      ...[...this.run.ids.slice(-300), ...this.run.users, ...this.run.families].map((name) =>
        el("option", { value: name }),
      ),
    );
  }

  bind() {
    const slider = byName("slider");
    slider.addEventListener("input", () => {
      this.pause();
      this.setFrame(+slider.value);
    });
    byName("play").addEventListener("click", () => this.toggle());
    byName("speed").addEventListener("change", (event) => (this.speed = +event.target.value));
    byName("run").addEventListener("change", (event) => this.show(+event.target.value));
    byName("colours").addEventListener("change", (event) => {
      this.colours = event.target.value;
      this.drawAll();
    });
    byName("theme").addEventListener("click", () => this.turnLights());
    byName("help").addEventListener("click", () => byName("keys").showModal());
    byName("keys")
      .querySelector("dl")
      .append(
        ...Object.entries({ ...KEYS, ...WORDS }).flatMap(([key, what]) => [el("dt", {}, key), el("dd", {}, what)]),
      );
    const search = byName("search");
    search.addEventListener("input", () => this.search(search.value.trim()));
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => {
      if (location.hash !== this.address()) {
        this.fromAddress();
        this.drawAll();
      }
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) =>
      this.setTheme(event.matches ? "dark" : "light"),
    );
    const root = document.documentElement; // paper is light
    addEventListener("beforeprint", () => {
      this.screenTheme = root.dataset.theme;
      this.setTheme("light");
    });
    addEventListener("afterprint", () => this.setTheme(this.screenTheme));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input[type=search], select, textarea");
    if (byName("keys").open) return;
    if (event.key === "Escape") {
      document.activeElement.blur();
      return this.select(null);
    }
    if (isTyping) return;
    const isButton = event.target.matches("button, summary"),
      step = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowRight: () => this.setFrame(this.frame + step),
      ArrowLeft: () => this.setFrame(this.frame - step),
      Home: () => this.setFrame(0),
      End: () => this.setFrame(this.run.last),
      j: () => this.neighbour(1),
      k: () => this.neighbour(-1),
      t: () => this.turnLights(),
      "/": () => byName("search").focus(),
      "?": () => byName("keys").showModal(),
      ...(isButton ? {} : { " ": () => this.toggle() }),
    };
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    if (event.key.startsWith("Arrow")) this.pause();
    act();
  }

  neighbour(step) {
    const alive = this.run.alive(this.frame).map((one) => one.id);
    if (!alive.length) return;
    const place = this.selection?.type === "organelle" ? alive.indexOf(this.selection.id) : step > 0 ? -1 : 0;
    this.select({ type: "organelle", id: alive[(place + step + alive.length) % alive.length] });
  }

  // Selects what the words name, and shows replies with them.
  search(words) {
    this.query = words;
    const found = this.run.named(words);
    if (found) this.select(found);
    else if (this.places.replies) this.panels.passing(this.places.replies);
  }

  show(number) {
    this.run = this.runs[number];
    this.selection = null;
    this.frame = Math.max(this.run.last, 0);
    this.moment = this.frame;
    this.picker();
    this.drawAll();
  }

  select(selection) {
    this.selection = selection;
    this.drawAll();
  }

  isSelected(type, id) {
    return this.selection?.type === type && this.selection.id === id;
  }

  goTo(generation) {
    this.pause();
    this.setFrame(this.run.frameOf(generation));
  }

  setFrame(frame) {
    this.frame = Math.max(0, Math.min(frame, this.run.last));
    this.moment = this.frame;
    this.follow();
  }

  toggle() {
    if (this.isPlaying) return this.pause();
    if (this.run.last < 1) return;
    if (this.moment >= this.run.last) this.moment = 0;
    this.isPlaying = true;
    this.clock = performance.now();
    this.drawn = 0;
    byName("play").textContent = "⏸";
    byName("play").setAttribute("aria-label", "pause");
    requestAnimationFrame((now) => this.step(now));
  }

  pause() {
    if (!this.isPlaying) return;
    this.isPlaying = false;
    byName("play").textContent = "▶";
    byName("play").setAttribute("aria-label", "play");
    this.setFrame(Math.round(this.moment));
  }

  step(now) {
    if (!this.isPlaying) return;
    const pace = (this.speed * Math.max(this.run.last, 1)) / SECONDS / 1000;
    // A frame may have begun before the key was pressed: time never runs backwards.
    const passed = Math.min(Math.max(now - this.clock, 0), 100);
    this.moment = Math.min(this.moment + passed * Math.min(pace, 0.03 * this.speed), this.run.last);
    this.clock = now;
    const frame = Math.floor(this.moment);
    this.paint();
    if (frame !== this.frame) {
      this.frame = frame;
      this.tellMoment();
      for (const chart of this.charts) chart.follow();
      if (now - this.drawn > 400) {
        this.drawn = now;
        this.drawMoment();
      }
    }
    if (this.moment >= this.run.last) return this.pause();
    requestAnimationFrame((next) => this.step(next));
  }

  paint() {
    this.living.draw(this.moment);
  }

  // What one moment shows; while it plays, of that what is on the screen.
  drawMoment() {
    const isDue = (place) => place && (!this.isPlaying || isOnScreen(place)),
      { biography, news, replies } = this.places;
    for (const chart of this.charts) if (chart.view.follows && isDue(chart.place.parentElement)) chart.draw();
    if (isDue(biography)) this.panels.biography(biography);
    if (isDue(news)) this.panels.ticker(news);
    if (isDue(replies)) this.panels.passing(replies);
  }

  follow() {
    this.tellMoment();
    this.paint();
    for (const chart of this.charts) chart.follow();
    this.drawMoment();
    history.replaceState(null, "", this.address());
  }

  drawAll() {
    const { run } = this;
    const lived = run.planned === null ? run.generations : `${run.generations} of ${run.planned}`;
    byName("facts").textContent = plain(
      `${run.name}: ${run.strategy} on ${run.host}, seed ${run.seed}, ${lived} generations`,
    );
    byName("headline").textContent = run.headline;
    byName("left-out").textContent = run.leftOut.join(" ");
    byName("left-out").hidden = !run.leftOut.length;
    byName("canvas-view").hidden = run.isAlone || run.hasExams;
    byName("colour-picker").hidden = run.isAlone;
    byName("colours").querySelector("[value=score]").hidden = !run.hasExams;
    byName("slider").max = Math.max(run.last, 0);
    this.living.setRun(run);
    this.tellColours();
    this.drawTicks();
    for (const chart of this.charts) chart.draw();
    for (const id of ["trials", "news", "replies"]) byName(`${id}-view`).hidden = !run[id].length;
    this.panels.trials(this.places.trials);
    this.follow();
  }

  // What the colours of bodies stand for.
  tellColours() {
    const { run } = this,
      names =
        this.colours === "family"
          ? run.families
          : this.colours === "founder"
            ? [...run.founders.keys()]
            : run.organelles.filter((one) => one.colour >= 0).map((one) => one.id);
    const title = { own: "those that answered most:", family: "specialties:", founder: "descendants of:" }[
      this.colours
    ];
    const colour = (name) =>
      this.colours === "family" ? colourOf(run.families.indexOf(name)) : run.colour(name, this.colours);
    const entry = (name, paint) =>
      el("span", {}, el("span", { class: "dot", style: `background:${paint}` }), plain(name));
    const hasOthers = this.colours !== "family" && run.ids.length > names.length;
    this.legend.replaceChildren(
      ...(names.length ? [title, ...names.map((name) => entry(name, colour(name)))] : []),
      ...(hasOthers ? [entry("others", cssColour("--grey"))] : []),
    );
  }

  tellMoment() {
    byName("slider").value = this.frame;
    byName("moment").textContent =
      this.run.last < 0 ? "no generation yet" : `generation ${this.run.generation(this.frame)}`;
  }

  // Marks above the slider: births and deaths, and where the world changed.
  drawTicks() {
    const canvas = byName("ticks"),
      { run } = this,
      width = canvas.clientWidth || 300;
    canvas.width = width;
    canvas.height = 12;
    const pen = canvas.getContext("2d"),
      colours = {
        birth: colourOf(2),
        merge: colourOf(2),
        death: colourOf(3),
        world: cssColour("--ink"),
        change: colourOf(5),
      };
    for (const one of run.news) {
      if (!(one.kind in colours)) continue;
      pen.fillStyle = colours[one.kind];
      const x = 8 + ((width - 16) * run.frameOf(one.generation)) / Math.max(run.last, 1);
      pen.fillRect(x, one.kind === "world" ? 0 : 4, one.kind === "world" ? 2 : 1, 12);
    }
  }

  saveCanvas(form) {
    const name = `${this.run.name}-canvas-${this.run.generation(this.frame)}.${form}`;
    if (form === "png") return download(name, this.canvas.toDataURL("image/png"));
    const pen = new SvgPen(this.living.box, cssColour("--card"));
    this.living.paint(pen, this.frame, 0, 1);
    download(name, svgUrl(pen.text()));
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.drawAll();
  }

  turnLights() {
    this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  }

  address() {
    const parts = {
      run: this.runs.indexOf(this.run) || "",
      g: this.run.generation(this.frame),
      [this.selection?.type ?? "organelle"]: this.selection?.id ?? "",
    };
    return `#${new URLSearchParams(Object.entries(parts).filter(([, value]) => value !== ""))}`;
  }

  fromAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    this.run = this.runs[+said.get("run")] ?? this.run;
    byName("run").value = this.runs.indexOf(this.run);
    const generation = parseInt(said.get("g"), 10);
    this.frame = Number.isFinite(generation) ? Math.max(0, this.run.frameOf(generation)) : Math.max(this.run.last, 0);
    this.moment = this.frame;
    const type = ["organelle", "user", "cell", "family"].find((name) => said.get(name));
    this.selection = type ? { type, id: said.get(type) } : null;
  }

  // Asks the server for more, as long as the page is open.
  async listen() {
    const told = byName("live");
    told.hidden = false;
    let version = "";
    for (;;) {
      try {
        const answer = await fetch("record.json", {
          headers: version ? { "If-None-Match": version } : {},
          cache: "no-store",
        });
        if (answer.status === 200) {
          this.take(await answer.json());
          version = answer.headers.get("ETag") ?? "";
          this.picker();
          this.drawAll();
        }
        told.textContent = this.run.isComplete ? "● the run is complete" : "● live";
      } catch (error) {
        if (!(error instanceof TypeError)) throw error; // a mistake of this page, not of the network
        told.textContent = "○ the server is gone; this is the last that it said";
      }
      await new Promise((done) => setTimeout(done, 1500));
    }
  }
}

// What LivingCanvas draws with, as SVG.
class SvgPen {
  constructor(box, ground) {
    this.box = box;
    this.parts = [
      `<rect x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}" fill="${ground}"/>`,
    ];
    this.globalAlpha = 1;
    this.dash = [];
  }

  beginPath() {
    this.path = "";
  }
  arc(x, y, radius) {
    const half = (width) => `a${radius} ${radius} 0 1 0 ${width} 0`;
    this.path += `M${x - radius} ${y}${half(2 * radius)}${half(-2 * radius)}`;
  }
  moveTo(x, y) {
    this.path += `M${x} ${y}`;
  }
  lineTo(x, y) {
    this.path += `L${x} ${y}`;
  }
  setLineDash(dash) {
    this.dash = dash;
  }
  fill() {
    this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}" opacity="${this.globalAlpha}"/>`);
  }
  stroke() {
    this.parts.push(
      `<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" ` +
        `stroke-dasharray="${this.dash.join(" ")}" opacity="${this.globalAlpha}"/>`,
    );
  }
  strokeText() {}
  fillText(words, x, y) {
    const safe = plain(words).replace(/[<>&]/g, (letter) => `&#${letter.codePointAt(0)};`);
    this.parts.push(
      `<text x="${x}" y="${y}" fill="${this.fillStyle}" text-anchor="middle" dominant-baseline="central" ` +
        `font-family="sans-serif" font-size="11" font-weight="600" opacity="${this.globalAlpha}">${safe}</text>`,
    );
  }

  text() {
    const { left, top, width, height } = this.box;
    const size = `viewBox="${left} ${top} ${width} ${height}" width="${2 * width}" height="${2 * height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${this.parts.join("")}</svg>`;
  }
}

function isOnScreen(place) {
  const { top, bottom } = place.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

function byName(id) {
  return document.getElementById(id);
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const page = new Page(JSON.parse(byName("record").textContent));
performance.mark("ready");
