// Panels of text: the biography of what is selected, trials, news, replies.

const SHOWN_REPLIES = 8,
  SHOWN_NEWS = 400;

class Panels {
  constructor(state, kinds) {
    this.state = state;
    this.kinds = kinds; // kinds of news, and what they are called
    this.hidden = new Set();
    this.filter = "all";
  }

  link(type, id, text = id) {
    return el(
      "button",
      { class: "link", type: "button", onclick: () => this.state.select({ type, id }) },
      this.dot(type, id),
      plain(text),
    );
  }

  dot(type, id) {
    if (type !== "organelle" || !this.state.run.byId.has(id)) return null;
    return el("span", { class: "dot", style: `background:${this.state.run.colour(id, this.state.colours)}` });
  }

  links(type, ids) {
    return ids.flatMap((id, place) => [place ? " " : "", this.link(type, id)]);
  }

  // A sentence in which organelles and users can be selected.
  sentence(news) {
    const { run } = this.state,
      users = new Set(run.users),
      names = new Set([...news.organelles, ...news.places]);
    const shown = plain(news.text).split(/(\s+|[.,;:]+(?=\s|$))/);
    return shown.map((word) =>
      run.byId.has(word) && names.has(word)
        ? this.link("organelle", word)
        : users.has(word)
          ? this.link("user", word)
          : run.families.includes(word)
            ? this.link("family", word)
            : word,
    );
  }

  biography(place) {
    const chosen = this.state.selection,
      run = this.state.run;
    const parts = !chosen
      ? this.ofRun(run)
      : chosen.type === "organelle"
        ? this.ofOrganelle(run, chosen.id)
        : chosen.type === "user"
          ? this.ofUser(run, chosen.id)
          : this.ofCells(run, chosen);
    place.replaceChildren(...parts.filter(Boolean));
  }

  facts(rows) {
    return el(
      "dl",
      {},
      Object.entries(rows)
        .filter(([, value]) => value !== null && value !== undefined)
        .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
    );
  }

  ofRun(run) {
    const { frame } = this.state,
      late = Math.floor(0.75 * (frame + 1)),
      total = (first) => [...run.sums(first, frame, () => "all").values()][0];
    const ranked = [...run.sums(late, frame, (row) => run.actor(row))]
      .filter(([id]) => id !== HOST)
      .sort((a, b) => b[1].right - a[1].right);
    const host = run.hostAnswers.reduce(
      (sum, one) => ({ asked: sum.asked + one.asked, right: sum.right + one.right }),
      { asked: 0, right: 0 },
    );
    const born = run.organelles.filter((one) => one.born <= run.generation(frame));
    return [
      el("h3", {}, "The run"),
      this.facts({
        "bare host": run.hasUsers ? null : `${percent(host)} of ${host.asked} questions right before anybody learned`,
        [run.yes]: !total(0)
          ? "nobody was asked anything yet"
          : `${percent(total(0))} of ${total(0).asked} up to the slider; ` +
            `${percent(total(late))} of the quarter before it`,
        alive: `${run.alive(frame).length} at the slider, of ${born.length} born by then`,
        "best lately":
          ranked.length && !run.isAlone && !run.hasExams
            ? [
                this.link("organelle", ranked[0][0]),
                ` with most ${run.yes} answers in that quarter, ` +
                  `${Math.round(ranked[0][1].right)} of ${ranked[0][1].asked}`,
              ]
            : null,
        best: this.bestScore(run),
        "dominant founders": run.isAlone || run.hasExams ? null : this.dominant(run),
        compute: run.curves.flops.length
          ? `${run.curves.flops[frame].toExponential(2)} FLOPs for all, up to the slider`
          : null,
        strategy: run.strategy,
        host: run.host,
        seed: run.seed,
        generations: run.planned === null ? `${run.generations}, in service` : `${run.generations} of ${run.planned}`,
      }),
      el("p", { class: "soft" }, "Select an organelle, a user or a cell in any view."),
      ...this.families(run),
      ...this.evaluations(run),
      el("details", {}, el("summary", {}, "config"), el("pre", { class: "text" }, plain(run.config))),
    ];
  }

  // Who has the highest score of the living, and by which genes.
  bestScore(run) {
    const [best] = run
      .alive(this.state.frame)
      .filter((one) => Number.isFinite(one.score) && one.examined <= run.generation(this.state.frame))
      .sort((a, b) => b.score - a.score);
    return best
      ? [
          this.link("organelle", best.id),
          ` with score ${scoreOf(best)}`,
          ...(Object.keys(best.genes).length ? [`: ${this.genes(best)}`] : []),
        ]
      : null;
  }

  genes(one) {
    return Object.entries(one.genes)
      .map(([name, text]) => `${name} ${text}`)
      .join(", ");
  }

  // The founders whose descendants gave most answers in the quarter before the slider.
  dominant(run) {
    const { frame } = this.state,
      late = Math.floor(0.75 * (frame + 1));
    const sums = [...run.sums(late, frame, (row) => run.founder(run.actor(row)))]
      .filter(([id]) => id !== HOST)
      .sort((a, b) => b[1].asked - a[1].asked);
    const all = sums.reduce((sum, [, one]) => sum + one.asked, 0);
    if (!sums.length) return null;
    const told = sums
      .slice(0, 3)
      .flatMap(([id, one], place) => [
        place ? ", " : "",
        this.link("organelle", id),
        ` ${Math.round((100 * one.asked) / all)} %`,
      ]);
    return [...told, " of the answers of that quarter, descendants by first parents included"];
  }

  families(run) {
    const { frame } = this.state,
      now = run.generation(frame);
    const rows = run.families.map((family) => {
      const news = (run.newsOf.get(family) ?? [])
        .filter((one) => one.kind === "milestone" && one.generation <= now)
        .at(-1);
      const late = run
        .sums(Math.floor(0.75 * (frame + 1)), frame, (row) =>
          familyOf(run.cells[run.acts.cell[row]]) === family ? "all" : null,
        )
        .get("all");
      return el(
        "tr",
        {},
        el("td", {}, this.link("family", family)),
        el("td", { class: "number" }, percent(late)),
        el("td", {}, news ? [`${news.generation}: `, this.sentence(news)] : "not yet"),
      );
    });
    return rows.length
      ? [
          el("h3", {}, "When families were solved, up to the slider"),
          el(
            "table",
            {},
            el(
              "tr",
              {},
              el("th", {}, "family"),
              el("th", { class: "number" }, "lately"),
              el("th", {}, "since generation, and by whom"),
            ),
            rows,
          ),
        ]
      : [];
  }

  evaluations(run) {
    if (!run.evaluations.length) return [];
    const share = (part) => (100 * part).toFixed(1);
    const rows = run.evaluations.map((one) =>
      el(
        "tr",
        {},
        el("td", { class: "number" }, one.generation),
        el("td", {}, one.routing),
        el("td", {}, `${share(one.accuracy.estimate)} % [${share(one.accuracy.low)}, ${share(one.accuracy.high)}]`),
      ),
    );
    return [
      el("h3", {}, "Exams on questions that nobody learned from"),
      el(
        "table",
        {},
        el(
          "tr",
          {},
          ["generation", "routing", `${run.yes} [95 %]`].map((name) => el("th", {}, name)),
        ),
        rows,
      ),
    ];
  }

  ofOrganelle(run, id) {
    const one = run.byId.get(id);
    if (!one) return this.ofTrial(run, id);
    const { frame } = this.state,
      served = run.served(frame).get(id) ?? [],
      books = run.books.get(id);
    const total = (name) =>
      books ? books[name].reduce((sum, value, row) => sum + (books.frame[row] <= frame ? value : 0), 0) : 0;
    const ranks = one.ranks
      .map(([since, rank], place) => (place ? `${rank} since generation ${since}` : rank))
      .join(", ");
    return [
      el("h3", {}, this.dot("organelle", id), ` ${id}`),
      this.facts({
        born: `generation ${one.born}, by ${one.operator}`,
        parents: one.parents.length ? this.links("organelle", one.parents) : "none: it is a founder",
        ancestor: one.parents.length ? this.link("organelle", run.founder(id)) : null,
        children: one.children.length ? this.links("organelle", one.children) : "none",
        died: one.died === null ? "alive" : `generation ${one.died}: ${one.cause}`,
        score: Number.isFinite(one.score) ? `${scoreOf(one)}, first exam in generation ${one.examined}` : null,
        energy: !run.hasEconomy
          ? null
          : run.isAlive(one, frame)
            ? `${atp(run.balance(id, frame))} ATP at the slider`
            : "not alive at the slider",
        earned: !run.hasEconomy
          ? null
          : `${atp(total("revenue"))} ATP up to the slider; spent on compute ${atp(total("cost"))}, ` +
            `rent ${atp(total("rent"))}, tickets ${atp(total("ticket"))}`,
        serves: run.hasUsers ? (served.length ? this.links("user", served) : "nobody at the slider") : null,
        rank: ranks || null,
        lessons: one.lessons,
        traits: one.genes
          ? this.genes(one) || null
          : Object.entries(one.traits)
              .map(([name, value]) => `${name} ${+value.toPrecision(3)}`)
              .join(", ") || null,
        ΔW: one.body
          ? `norm ${short(one.body.norm)}, ${one.body.parameters.toLocaleString("en")} parameters`
          : "no longer in the folder",
      }),
      one.body ? this.spectrum(one.body) : null,
      ...this.where(run, id),
      ...this.newsAbout(run, id),
      ...this.replies(run, id),
    ];
  }

  // Who was tried and never born.
  ofTrial(run, id) {
    const trial = run.trials.find((one) => one.id === id);
    if (!trial) return [el("p", { class: "empty" }, `Nothing is called ${plain(id)} in this run.`)];
    return [el("h3", {}, `${plain(id)}, a challenger`), this.trialTable(run, [trial]), ...this.newsAbout(run, id)];
  }

  // Bars of the singular values, and of the norm by kind of module.
  spectrum(body) {
    const bars = (title, entries) => {
      const most = Math.max(...entries.map(([, value]) => value), 1e-12);
      return el(
        "div",
        {},
        el("span", { class: "soft" }, title),
        entries.map(([name, value]) =>
          el(
            "div",
            { style: "display:grid;grid-template-columns:6.5rem 1fr 4rem;gap:.4rem;font-size:.82rem" },
            el("span", {}, plain(name)),
            el("span", {
              style: `background:var(--accent);height:.6em;align-self:center;width:${(100 * value) / most}%`,
            }),
            el("span", {}, short(value)),
          ),
        ),
      );
    };
    return el(
      "details",
      {},
      el("summary", {}, "spectrum and norms of ΔW"),
      bars(
        "singular values (root mean square over modules)",
        body.spectrum.map((value, place) => [`direction ${place + 1}`, value]),
      ),
      bars("norm by kind of module", Object.entries(body.by_module)),
    );
  }

  where(run, id) {
    const sums = [
      ...run.sums(0, this.state.frame, (row) => (run.actor(row) === id ? run.cells[run.acts.cell[row]] : null)),
    ].sort((a, b) => b[1].asked - a[1].asked);
    const host = new Map(run.hostAnswers.map((one) => [one.cell, one]));
    if (!sums.length)
      return [el("h3", {}, "What it answered"), el("p", { class: "empty" }, "Nobody asked it anything.")];
    return [
      el("h3", {}, "What it answered"),
      el(
        "table",
        {},
        el(
          "tr",
          {},
          el("th", {}, "cell"),
          el("th", { class: "number" }, "answers"),
          el("th", { class: "number" }, run.yes),
          el("th", { class: "number" }, "bare host"),
        ),
        sums
          .slice(0, 12)
          .map(([cell, sum]) =>
            el(
              "tr",
              {},
              el("td", {}, this.link("cell", cell)),
              el("td", { class: "number" }, sum.asked),
              el("td", { class: "number" }, percent(sum)),
              el("td", { class: "number" }, percent(host.get(cell))),
            ),
          ),
      ),
    ];
  }

  ofUser(run, id) {
    const { frame } = this.state,
      move = run.server(id, frame),
      moves = run.moves.get(id) ?? [],
      kind = run.kind(id, frame);
    const sum = (first, last) =>
      run.sums(first, last, (row) => (run.acts.users[run.acts.user[row]] === id ? "all" : null)).get("all");
    return [
      el("h3", {}, `user ${plain(id)}`),
      this.facts({
        "served by": move
          ? [this.link("organelle", move.id), ` since generation ${move.generation}`]
          : "nobody at the slider",
        "hidden kind": kind === null ? null : `${kind} (organelles never see it)`,
        accepted:
          `${percent(sum(0, frame))} of ${sum(0, frame)?.asked ?? 0} answers up to the slider; ` +
          `${percent(sum(Math.floor(0.75 * (frame + 1)), frame))} of the quarter before it`,
      }),
      el("h3", {}, "Served by"),
      el(
        "table",
        {},
        el("tr", {}, el("th", { class: "number" }, "since"), el("th", {}, "who")),
        moves.map((one) =>
          el(
            "tr",
            {},
            el("td", { class: "number" }, one.generation),
            el("td", {}, one.id ? this.link("organelle", one.id) : "nobody"),
          ),
        ),
      ),
      ...this.newsAbout(run, id),
      ...this.replies(run, id),
    ];
  }

  ofCells(run, chosen) {
    const isHere = (cell) => (chosen.type === "family" ? familyOf(cell) : cell) === chosen.id;
    const sums = [
      ...run.sums(0, this.state.frame, (row) => (isHere(run.cells[run.acts.cell[row]]) ? run.actor(row) : null)),
    ].sort((a, b) => b[1].right - a[1].right);
    const family = chosen.type === "family" ? chosen.id : familyOf(chosen.id);
    return [
      el("h3", {}, plain(chosen.id)),
      this.facts({
        held: run.holders(this.state.frame).get(chosen.id)?.id
          ? [this.link("organelle", run.holders(this.state.frame).get(chosen.id).id), " holds it in the archive"]
          : null,
      }),
      el("h3", {}, "Who answered it"),
      el(
        "table",
        {},
        el(
          "tr",
          {},
          el("th", {}, "organelle"),
          el("th", { class: "number" }, "answers"),
          el("th", { class: "number" }, run.yes),
        ),
        sums
          .slice(0, 12)
          .map(([id, sum]) =>
            el(
              "tr",
              {},
              el("td", {}, this.link("organelle", id)),
              el("td", { class: "number" }, sum.asked),
              el("td", { class: "number" }, percent(sum)),
            ),
          ),
      ),
      ...this.newsAbout(run, chosen.id === family ? family : chosen.id),
      ...(chosen.type === "cell" ? this.replies(run, chosen.id) : []),
    ];
  }

  newsAbout(run, name) {
    const news = run.newsOf.get(name) ?? [];
    return news.length ? [el("h3", {}, "What happened to it"), this.newsList(news.slice(-40))] : [];
  }

  replies(run, name) {
    const now = run.generation(this.state.frame),
      all = (run.repliesOf.get(name) ?? []).filter((one) => one.generation <= now);
    const part = (title, chosen) =>
      chosen.length ? [el("h3", {}, title), this.replyTable(chosen.slice(-SHOWN_REPLIES).reverse())] : [];
    const found = [
      ...part(
        "Replies that were refused",
        all.filter((one) => one.verdict < 0.5),
      ),
      ...part(
        "Replies that were accepted",
        all.filter((one) => one.verdict >= 0.5),
      ),
    ];
    return found.length
      ? found
      : [el("h3", {}, "Replies"), el("p", { class: "empty" }, "No reply of it up to the slider was kept.")];
  }

  replyTable(replies) {
    const hasUser = replies.some((one) => one.user),
      hasTarget = replies.some((one) => one.target);
    const sure = (one) =>
      Number.isFinite(one.confidence) ? `${Math.round(100 * Math.exp(one.confidence))} %` : "–";
    return el(
      "table",
      { class: "replies" },
      el(
        "tr",
        {},
        el("th", { class: "number" }, "gen."),
        el("th", {}, "who"),
        hasUser ? el("th", {}, "user") : null,
        el("th", {}, "question"),
        el("th", {}, "reply"),
        hasTarget ? el("th", {}, "wanted") : null,
        el("th", { class: "number", title: "probability per token" }, "sure"),
      ),
      replies.map((one) =>
        el(
          "tr",
          {},
          el("td", { class: "number", "data-name": "generation" }, one.generation),
          el("td", {}, this.link("organelle", one.id)),
          hasUser ? el("td", {}, one.user ? this.link("user", one.user) : "") : null,
          el(
            "td",
            { class: "question" },
            text(`${one.examples ? `(${one.examples} examples) ` : ""}${one.prompt.trim()}`),
          ),
          el(
            "td",
            { class: one.verdict >= 0.5 ? "right" : "wrong" },
            one.verdict >= 0.5 ? "✓ " : "✗ ",
            text(one.reply),
          ),
          hasTarget ? el("td", { "data-name": "wanted" }, text(one.target)) : null,
          el("td", { class: "number", "data-name": "sure" }, sure(one)),
        ),
      ),
    );
  }

  newsList(news) {
    const now = this.state.run.generation(this.state.frame);
    return el(
      "ul",
      { class: "news" },
      news.map((one) =>
        el(
          "li",
          { class: one.generation > now ? "later" : "", "data-kind": one.kind },
          el(
            "time",
            {},
            el(
              "button",
              { class: "link", type: "button", onclick: () => this.state.goTo(one.generation) },
              one.generation,
            ),
          ),
          el("span", { "aria-label": this.kinds[one.kind], title: this.kinds[one.kind] }, ICONS[one.kind] ?? "•"),
          el("span", {}, this.sentence(one)),
        ),
      ),
    );
  }

  chips(redraw) {
    const count = (kind) => this.state.run.news.filter((one) => one.kind === kind).length;
    return el(
      "div",
      { class: "chips" },
      Object.entries(this.kinds)
        .filter(([kind]) => count(kind))
        .map(([kind, name]) =>
          el(
            "button",
            {
              type: "button",
              "aria-pressed": String(!this.hidden.has(kind)),
              onclick: () => {
                this.hidden.has(kind) ? this.hidden.delete(kind) : this.hidden.add(kind);
                redraw();
              },
            },
            `${ICONS[kind]} ${name} ${count(kind)}`,
          ),
        ),
    );
  }

  // The news up to the slider, the newest first.
  ticker(place) {
    const { run, frame } = this.state,
      now = run.generation(frame),
      redraw = () => this.ticker(place);
    const past = run.news.filter((one) => one.generation <= now && !this.hidden.has(one.kind));
    const shown = past.slice(-SHOWN_NEWS).reverse();
    place.replaceChildren(
      this.chips(redraw),
      shown.length ? this.newsList(shown) : el("p", { class: "empty" }, "Nothing has happened by then."),
      past.length > shown.length
        ? el("p", { class: "soft" }, `${past.length - shown.length} older ones: move the slider back.`)
        : "",
    );
  }

  trials(place) {
    const { run } = this.state;
    place.replaceChildren(
      el(
        "p",
        { class: "soft" },
        "A challenger has to show in every comparison that it is better, or that it loses nothing; " +
          "the counts are those over its better parent.",
      ),
      this.trialTable(run, run.trials.slice(-200).reverse()),
    );
  }

  trialTable(run, trials) {
    const told = (one) => (one.ended === null ? "still on trial" : one.verdict === "admit" ? "admitted" : "refused");
    const counts = (one) =>
      one.ended === null
        ? ""
        : `${one.wins} / ${one.ties} / ${one.losses}; evidence that it is better ${short(one.evidence)} : 1`;
    return el(
      "table",
      {},
      el(
        "tr",
        {},
        ["generations", "who", "of", "by", "verdict", "why", `alone ${run.yes} / alike / alone ${run.no}`].map((name) =>
          el("th", {}, name),
        ),
      ),
      trials.map((one) =>
        el(
          "tr",
          {},
          el("td", {}, `${one.began}–${one.ended ?? ""}`),
          el("td", {}, this.link("organelle", one.id)),
          el("td", {}, this.links("organelle", one.parents)),
          el("td", {}, plain(one.operator)),
          el("td", { class: one.ended === null ? "" : one.verdict === "admit" ? "right" : "wrong" }, told(one)),
          el("td", {}, one.verdict === "admit" ? "shown in every comparison" : plain(one.reason)),
          el("td", {}, counts(one)),
        ),
      ),
    );
  }

  // Replies up to the slider: all, the right or the wrong, those with a word, of what is selected.
  passing(place) {
    const { run, frame, query } = this.state,
      now = run.generation(frame),
      word = query.toLowerCase();
    const isMeant = (one) =>
      (this.filter === "all" || one.verdict >= 0.5 === (this.filter === "yes")) &&
      (!word || [one.id, one.user, one.cell, one.prompt, one.reply].some((part) => part?.toLowerCase().includes(word)));
    const found = run.replies.filter((one) => one.generation <= now && isMeant(one)),
      shown = found.slice(-60).reverse();
    place.replaceChildren(
      el(
        "div",
        { class: "chips" },
        Object.entries({ all: "all", yes: run.yes, no: run.no }).map(([filter, name]) =>
          el(
            "button",
            {
              type: "button",
              "aria-pressed": String(this.filter === filter),
              onclick: () => {
                this.filter = filter;
                this.passing(place);
              },
            },
            name,
          ),
        ),
      ),
      shown.length
        ? this.replyTable(shown)
        : el("p", { class: "empty" }, "No reply up to the slider is like that."),
      found.length > shown.length
        ? el("p", { class: "soft" }, `${found.length - shown.length} older ones are not listed.`)
        : "",
    );
  }
}

const ICONS = {
  birth: "▲",
  death: "✕",
  trial: "⚖",
  merge: "⋈",
  move: "→",
  change: "!",
  world: "◆",
  milestone: "★",
  body: "◐",
  fault: "⚠",
};

function text(content) {
  return el("span", { class: "text", dir: "auto" }, plain(content));
}
