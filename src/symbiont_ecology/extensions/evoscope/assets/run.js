// A run as the page asks for it: who lived when, what they held, whom they served, what was right.

const PALETTE = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#d55e00",
  "#56b4e9",
  "#cc79a7",
  "#332288",
  "#999933",
  "#882255",
  "#117733",
  "#aa4499",
  "#661100",
]; // Okabe & Ito (2008), then Tol's "muted": told apart by people who are colour-blind
const PALETTE_DARK = [
  "#4f86f0",
  "#e6a117",
  "#1fc28f",
  "#f0662e",
  "#86d3f5",
  "#dfb3cd",
  "#ab9ff2",
  "#b8c04f",
  "#d4608f",
  "#4f9a62",
  "#cf4fbf",
  "#b06c48",
]; // lighter, in the same order
const HOST = "host";

class RunView {
  constructor(record) {
    Object.assign(this, record);
    this.last = this.frames.ends.length - 1;
    this.byId = new Map(record.organelles.map((one) => [one.id, one]));
    this.ids = record.organelles.map((one) => one.id);
    this.origins = new Map();
    for (const one of record.organelles) Object.assign(one, { children: [], parents: [...new Set(one.parents)] });
    for (const one of record.organelles) for (const parent of one.parents) this.byId.get(parent)?.children.push(one.id);
    this.cells = record.acts.cells;
    this.users = [...record.acts.users].sort(byNumber);
    this.families = [...new Set(this.cells.map(familyOf))];
    this.books = this.#booksByOrganelle();
    this.actStarts = starts(record.acts.frame, this.last + 1);
    this.moves = groupBy(record.servings, (one) => one.user);
    this.kindsOf = groupBy(record.kinds, (one) => one.user);
    this.newsOf = new Map();
    for (const one of record.news)
      for (const name of new Set([...one.organelles, ...one.places, ...one.places.map(familyOf)]))
        push(this.newsOf, name, one);
    this.repliesOf = new Map();
    for (const one of record.replies)
      for (const name of new Set([one.id, one.user, one.cell])) push(this.repliesOf, name, one);
    this.specialty = this.#specialties();
    this.hasUsers = this.users.length > 0;
    [this.yes, this.no] = this.hasUsers ? ["accepted", "refused"] : ["right", "wrong"];
    this.founders = this.#foundersByAnswers();
    // One organelle by itself has no rivals, no relatives and no users.
    this.isAlone = !this.hasEconomy && this.ids.length < 2 && !this.hasUsers;
    this.examined = record.organelles.filter((one) => Number.isFinite(one.score));
    this.hasExams = this.examined.length > 0; // everybody sits the same exam, so nobody serves anybody
    this.scores = extentOf(this.examined.map((one) => one.score));
  }

  // Colours that tell most: of their own, or of founders where many late answers are of greys.
  get bestColours() {
    if (this.hasExams) return "score";
    const asked = this.sums(Math.floor(this.last / 2), this.last, (row) => this.byId.get(this.actor(row))?.colour >= 0);
    const isTold = (asked.get(true)?.asked ?? 0) >= 2 * (asked.get(false)?.asked ?? 0);
    return isTold || this.founders.size < 2 ? "own" : "founder";
  }

  // What the run came to, in a sentence.
  get headline() {
    if (this.last < 0) return "No generation is over yet.";
    const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
    const total = (list, part) => list.reduce((sum, one, frame) => sum + (part(frame) ? one : 0), 0);
    const share = (part) => percent({ asked: total(this.curves.asked, part), right: total(this.curves.right, part) });
    const quarter = (this.last + 1) / 4,
      late = share((frame) => frame >= Math.min(3 * quarter, this.last)),
      early = this.last < 3 ? "" : `, ${share((frame) => frame < quarter)} at first`;
    const found = this.hasUsers
      ? `${count(this.users.length, "user")}, ${count(this.served(this.last).size, "group")} found`
      : this.hasExams
        ? `${this.examined.length} sat an exam, the best score is ${short(this.scores.most)}`
        : `${count(this.alive(this.last).length, "organelle")} alive, of ${this.ids.length} ever born`;
    return `${found}. Of the last answers ${late} were ${this.yes}${early}.`;
  }

  generation(frame) {
    return this.frames.ends[frame] ?? 0;
  }

  frameOf(generation) {
    return Math.min(Math.floor(generation / this.frames.width), this.last);
  }

  isAlive(one, frame) {
    const now = this.generation(frame);
    return one.born <= now && (one.died === null || one.died > now);
  }

  alive(frame) {
    return this.organelles.filter((one) => this.isAlive(one, frame));
  }

  // The last balance of an organelle, mATP; 0 before its first books.
  balance(id, frame) {
    const books = this.books.get(id);
    if (!books) return 0;
    const place = lastAtMost(books.frame, frame);
    return place < 0 ? 0 : books.balance[place];
  }

  rank(one, frame) {
    const now = this.generation(frame);
    let rank = 0;
    for (const [since, value] of one.ranks) if (since <= now) rank = value;
    return rank;
  }

  // Who serves a user after a frame: {id, generation}, or null.
  server(user, frame) {
    const moves = this.moves.get(user) ?? [];
    const place = lastAtMost(
      moves.map((one) => one.generation),
      this.generation(frame),
    );
    return place < 0 || !moves[place].id ? null : moves[place];
  }

  served(frame) {
    const served = new Map();
    for (const user of this.users) {
      const move = this.server(user, frame);
      if (move) push(served, move.id, user);
    }
    return served;
  }

  kind(user, frame) {
    const kinds = this.kindsOf.get(user) ?? [];
    const place = lastAtMost(
      kinds.map((one) => one.generation),
      this.generation(frame),
    );
    return place < 0 ? null : kinds[place].kind;
  }

  // Sums of acts in frames [first, last]: {asked, right} by what `key` says of row numbers.
  sums(first, last, key) {
    const found = new Map(),
      acts = this.acts;
    for (let row = this.actStarts[Math.max(first, 0)]; row < this.actStarts[last + 1]; row++) {
      const name = key(row);
      if (name === null) continue;
      const sum = found.get(name) ?? { asked: 0, right: 0 };
      sum.asked += acts.asked[row];
      sum.right += acts.right[row];
      found.set(name, sum);
    }
    return found;
  }

  actor(row) {
    return this.ids[this.acts.who[row]] ?? HOST;
  }

  holders(frame) {
    const now = this.generation(frame),
      held = new Map();
    for (const claim of this.claims) if (claim.generation <= now) held.set(claim.cell, claim);
    return held;
  }

  // What a name stands for, as a selection; null if it is nothing here.
  named(name) {
    const type =
      this.byId.has(name) || this.trials.some((one) => one.id === name)
        ? "organelle"
        : this.users.includes(name)
          ? "user"
          : this.cells.includes(name)
            ? "cell"
            : this.families.includes(name)
              ? "family"
              : null;
    return type && { type, id: name };
  }

  // Where a line of first parents begins.
  founder(id) {
    if (this.origins.has(id)) return this.origins.get(id);
    let one = this.byId.get(id);
    for (let step = 0; step < this.ids.length && this.byId.has(one?.parents[0]); step++)
      one = this.byId.get(one.parents[0]);
    this.origins.set(id, one ? one.id : id);
    return this.origins.get(id);
  }

  colour(id, scheme) {
    if (scheme === "score") return this.scoreColour(this.byId.get(id)?.score);
    if (scheme === "family") return colourOf(this.families.indexOf(this.specialty.get(id)));
    if (scheme === "founder") return colourOf(this.founders.get(this.founder(id)) ?? -1);
    return colourOf(this.byId.get(id)?.colour ?? -1);
  }

  // Dark for the worst score of the run, light for the best; grey where there is none.
  scoreColour(score) {
    return Number.isFinite(score) ? scaleColour(partOf(score, this.scores)) : cssColour("--grey");
  }

  #booksByOrganelle() {
    const table = this.books,
      byId = new Map();
    table.frame.forEach((frame, row) => {
      const id = this.ids[table.who[row]];
      const books = byId.get(id) ?? { frame: [], revenue: [], cost: [], rent: [], ticket: [], balance: [] };
      for (const name of Object.keys(books)) books[name].push(table[name][row]);
      byId.set(id, books);
    });
    return byId;
  }

  // The founders whose descendants answered most have colours of their own: numbers by id.
  #foundersByAnswers() {
    const asked = [...this.sums(0, this.last, (row) => this.founder(this.actor(row)))].filter(([id]) => id !== HOST);
    const first = asked.sort((a, b) => b[1].asked - a[1].asked).slice(0, PALETTE.length);
    return new Map(first.map(([id], number) => [id, number]));
  }

  #specialties() {
    const right = new Map();
    this.acts.frame.forEach((_, row) => {
      const key = this.actor(row),
        families = right.get(key) ?? new Map();
      const family = familyOf(this.cells[this.acts.cell[row]]);
      families.set(family, (families.get(family) ?? 0) + this.acts.right[row]);
      right.set(key, families);
    });
    return new Map([...right].map(([id, families]) => [id, [...families].sort((a, b) => b[1] - a[1])[0][0]]));
  }
}

function colourOf(number) {
  const palette = document.documentElement.dataset.theme === "dark" ? PALETTE_DARK : PALETTE;
  return number >= 0 ? palette[number % palette.length] : cssColour("--grey");
}

// The least and the most of some numbers; 0 and 1 if there are none.
function extentOf(numbers) {
  return numbers.length ? { least: Math.min(...numbers), most: Math.max(...numbers) } : { least: 0, most: 1 };
}

// Where a number lies between the least and the most: 0 to 1.
function partOf(value, { least, most }) {
  return most > least ? (value - least) / (most - least) : 1;
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function familyOf(cell) {
  const cut = cell.lastIndexOf("/");
  return cut < 0 ? cell : cell.slice(0, cut);
}

function byNumber(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

function push(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

function groupBy(rows, key) {
  const groups = new Map();
  for (const row of rows) push(groups, key(row), row);
  return groups;
}

// The place of the last number that is at most `limit`, in a rising list; -1 if there is none.
function lastAtMost(numbers, limit) {
  let low = 0,
    high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// For every frame the first row that belongs to it or a later one, and the number of rows.
function starts(frames, count) {
  const found = new Array(count + 1).fill(frames.length);
  for (let row = frames.length - 1; row >= 0; row--) found[frames[row]] = row;
  for (let frame = count - 1; frame >= 0; frame--) found[frame] = Math.min(found[frame], found[frame + 1]);
  return found;
}

// ATP from mATP, to three digits.
function atp(milli) {
  const value = milli / 1000;
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(1) : value.toFixed(2);
}

// A number in three digits.
function short(value) {
  return value && Math.abs(value) < 0.001 ? value.toExponential(1) : `${+value.toPrecision(3)}`;
}

function percent(sum) {
  return sum && sum.asked ? `${Math.round((100 * sum.right) / sum.asked)} %` : "–";
}

// A text of a model or of data: what cannot be seen, or turns the direction of others, is spelt out, but for joiners.
function plain(text) {
  return String(text).replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, (letter) =>
    letter === "\n" || letter === "\t"
      ? letter
      : `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

// An element; texts are never read as HTML.
// A list from which a view's measure is chosen; options are names by value.
function measureList(view, options, redraw) {
  const onchange = (event) => {
    view.measure = event.target.value;
    redraw();
  };
  const items = Object.entries(options).map(([value, name]) => el("option", { value }, name));
  return el("select", { "aria-label": "measure", onchange }, items);
}

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
