// The living canvas: organelles are bodies, the users whom they serve are dots around them.
//
// Size is energy, colour is the organelle (or its specialty, or its founder). A newborn grows out of
// its first parent, the dead shrink and fade, a trial is a dashed ring, a merge is two lines.

const SPACING = 100; // of two berths, in units of the drawing

class LivingCanvas {
  constructor(canvas, state) {
    this.canvas = canvas;
    this.state = state;
    this.spots = []; // what was drawn, for the mouse: {x, y, radius, selection, title}
    canvas.addEventListener("click", (event) => {
      const spot = this.spotAt(event);
      state.select(spot ? spot.selection : null);
    });
    canvas.addEventListener("mousemove", (event) => {
      const spot = this.spotAt(event);
      canvas.title = spot ? spot.title : "";
      canvas.style.cursor = spot ? "pointer" : "default";
    });
  }

  setRun(run) {
    this.run = run;
    const places = run.organelles.map((one) => one.place);
    const [xs, ys] = [0, 1].map((axis) => places.map((place) => place[axis] * SPACING));
    const margin = 0.62 * SPACING;
    this.box = places.length
      ? {
          left: Math.min(...xs) - margin,
          top: Math.min(...ys) - margin,
          width: Math.max(...xs) - Math.min(...xs) + 2 * margin,
          height: Math.max(...ys) - Math.min(...ys) + 2 * margin,
        }
      : { left: -SPACING, top: -SPACING, width: 2 * SPACING, height: 2 * SPACING };
    this.most = Math.max(1, ...[...run.books.values()].map((books) => Math.max(...books.balance)));
    this.orbits = new Map(run.users.map((name, place) => [name, (2 * Math.PI * place) / run.users.length]));
    this.snapshots = new Map();
  }

  // Who is where at the end of a frame: bodies by id, and the place of every user's dot.
  snapshot(frame) {
    if (this.snapshots.has(frame)) return this.snapshots.get(frame);
    const run = this.run,
      bodies = new Map(),
      dots = new Map();
    for (const one of run.alive(frame)) {
      const energy = Math.max(run.balance(one.id, frame), 0) / this.most;
      bodies.set(one.id, { x: one.place[0] * SPACING, y: one.place[1] * SPACING, radius: 8 + 24 * Math.sqrt(energy) });
    }
    for (const [id, users] of run.served(frame)) {
      const body = bodies.get(id);
      if (!body) continue;
      users.forEach((user, place) => {
        const angle = users.length > 1 ? (2 * Math.PI * place) / users.length - Math.PI / 2 : this.orbits.get(user);
        const reach = Math.min(body.radius + 9, 0.46 * SPACING);
        dots.set(user, {
          x: body.x + reach * Math.cos(angle),
          y: body.y + reach * Math.sin(angle),
          server: id,
          isAbove: Math.sin(angle) < -0.8,
        });
      });
    }
    const taken = { bodies, dots };
    if (this.snapshots.size > 64) this.snapshots.clear();
    this.snapshots.set(frame, taken);
    return taken;
  }

  // Draws a moment between two frames.
  draw(moment) {
    const { run, canvas } = this,
      frame = Math.min(Math.floor(moment), run.last),
      part = moment - frame;
    const scale = devicePixelRatio || 1,
      { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return; // its card is hidden
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const zoom = Math.min(width / this.box.width, height / this.box.height, 1.6);
    this.view = {
      zoom,
      left: this.box.left - (width / zoom - this.box.width) / 2,
      top: this.box.top - (height / zoom - this.box.height) / 2,
    };
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.setTransform(scale * zoom, 0, 0, scale * zoom, -this.view.left * zoom * scale, -this.view.top * zoom * scale);
    this.paint(pen, frame, part, zoom);
  }

  paint(pen, frame, part, zoom) {
    const run = this.run,
      now = this.snapshot(frame),
      next = this.snapshot(Math.min(frame + 1, run.last));
    const ease = part * part * (3 - 2 * part),
      ink = cssColour("--ink"),
      soft = cssColour("--soft");
    this.spots = [];
    const bodies = new Map();
    for (const id of new Set([...now.bodies.keys(), ...next.bodies.keys()])) {
      const from = now.bodies.get(id),
        to = next.bodies.get(id),
        one = run.byId.get(id);
      const parent = now.bodies.get(one.parents[0]);
      const start = from ?? { ...(parent ?? to), radius: 0 },
        end = to ?? { ...from, radius: 0 };
      bodies.set(id, {
        x: mix(start.x, end.x, ease),
        y: mix(start.y, end.y, ease),
        radius: mix(start.radius, end.radius, ease),
        seen: from && to ? 1 : from ? 1 - ease : ease,
      });
    }
    const trials = run.trials.filter(
      (one) => one.began <= run.generation(frame) && (one.ended === null || one.ended >= run.generation(frame)),
    );
    this.paintTrials(pen, trials, bodies, soft);
    const ringed = new Set([
      ...trials.flatMap((one) => one.parents),
      ...[...now.dots.values(), ...next.dots.values()].filter((dot) => dot.isAbove).map((dot) => dot.server),
    ]);
    for (const [id, body] of bodies) {
      pen.globalAlpha = body.seen * this.strength(id);
      pen.beginPath();
      pen.arc(body.x, body.y, Math.max(body.radius, 0.5), 0, 2 * Math.PI);
      pen.fillStyle = run.colour(id, this.state.colours);
      pen.fill();
      const isChosen = this.state.isSelected("organelle", id);
      pen.lineWidth = isChosen ? 4 : 1;
      pen.strokeStyle = isChosen ? ink : "rgba(127,127,127,.6)";
      pen.stroke();
      if (zoom > 0.32 || isChosen) this.label(pen, id, body, ink, ringed.has(id) ? 20 : 8);
      this.spots.push({
        ...body,
        radius: Math.max(body.radius, 9),
        selection: { type: "organelle", id },
        title: this.titleOf(id, frame),
      });
    }
    this.paintDots(pen, now, next, ease, ink);
    pen.globalAlpha = 1;
  }

  // The name of a body: in it, or where it is small, so far above it.
  label(pen, id, body, ink, above) {
    const isInside = body.radius > 15;
    pen.font = "600 11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillStyle = isInside ? "#fff" : ink;
    if (isInside) {
      pen.lineWidth = 2.5;
      pen.strokeStyle = "rgba(0,0,0,.55)";
      pen.strokeText(id, body.x, body.y);
    }
    pen.fillText(id, body.x, isInside ? body.y : body.y - body.radius - above);
  }

  paintDots(pen, now, next, ease, ink) {
    for (const user of this.run.users) {
      const from = now.dots.get(user),
        to = next.dots.get(user);
      if (!from && !to) continue;
      const start = from ?? to,
        end = to ?? from;
      const dot = { x: mix(start.x, end.x, ease), y: mix(start.y, end.y, ease), radius: 4 };
      const isChosen = this.state.isSelected("user", user);
      pen.globalAlpha = (from && to ? 1 : from ? 1 - ease : ease) * (isChosen ? 1 : this.strength(start.server));
      pen.beginPath();
      pen.arc(dot.x, dot.y, isChosen ? 6.5 : dot.radius, 0, 2 * Math.PI);
      pen.fillStyle = isChosen ? ink : cssColour("--card");
      pen.fill();
      pen.lineWidth = 1.6;
      pen.strokeStyle = ink;
      pen.stroke();
      this.spots.push({
        ...dot,
        radius: 7,
        selection: { type: "user", id: user },
        title: `user ${user}, served by ${start.server}`,
      });
    }
  }

  paintTrials(pen, trials, bodies, soft) {
    for (const trial of trials) {
      for (const parent of trial.parents) {
        const body = bodies.get(parent);
        if (!body) continue;
        pen.globalAlpha = 1;
        pen.setLineDash([4, 4]);
        pen.lineWidth = 2;
        pen.strokeStyle = soft;
        pen.beginPath();
        pen.arc(body.x, body.y, body.radius + 5, 0, 2 * Math.PI);
        pen.stroke();
        const first = bodies.get(trial.parents[0]);
        if (first && first !== body) {
          pen.beginPath();
          pen.moveTo(first.x, first.y);
          pen.lineTo(body.x, body.y);
          pen.stroke();
        }
        pen.setLineDash([]);
      }
    }
  }

  // How strongly an organelle is drawn: those that have nothing to do with the selection are faint.
  strength(id) {
    const chosen = this.state.selection;
    if (!chosen) return 1;
    if (chosen.type === "organelle") return chosen.id === id ? 1 : 0.45;
    if (chosen.type === "user") return this.run.server(chosen.id, this.state.frame)?.id === id ? 1 : 0.45;
    return 1;
  }

  titleOf(id, frame) {
    const run = this.run,
      one = run.byId.get(id),
      users = run.served(frame).get(id) ?? [];
    const energy = `${atp(run.balance(id, frame))} ATP`,
      age = run.generation(frame) - one.born;
    return (
      `${id}: ${energy}, ${age} generations old, best at ${run.specialty.get(id) ?? "nothing yet"}` +
      (users.length ? `, serves ${users.join(" ")}` : "")
    );
  }

  spotAt(event) {
    const area = this.canvas.getBoundingClientRect(),
      { zoom, left, top } = this.view;
    const x = (event.clientX - area.left) / zoom + left,
      y = (event.clientY - area.top) / zoom + top;
    return this.spots.findLast((spot) => Math.hypot(spot.x - x, spot.y - y) <= spot.radius + 2 / zoom);
  }
}

function mix(from, to, part) {
  return from + (to - from) * part;
}
