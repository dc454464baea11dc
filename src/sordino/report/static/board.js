// The list of runs, and the curves of those that are chosen. The server tells of changes.
(() => {
  document.documentElement.classList.add("js");
  const about = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const runs = new Map(), chosen = new Set(), drawn = new Charts(), places = new Map();

  const element = (name, text, ...classes) => {
    const made = document.createElement(name);
    if (text != null) made.textContent = text;
    if (classes.length) made.className = classes.join(" ");
    return made;
  };

  function visible(run) {
    const text = get("filter").value.toLowerCase(), state = get("state").value;
    const named = `${run.name} ${run.task} ${run.method} ${run.kind}`.toLowerCase().includes(text);
    return named && (!state || (state === "finished") === run.finished);
  }

  function row(run) {
    const line = element("tr");
    line.dataset.name = run.name;
    line.setAttribute("aria-selected", chosen.has(run.name));
    line.tabIndex = 0;
    const name = element("td", run.name);
    if (run.kind !== "run") name.append(" ", element("span", run.kind, "small"));
    const rounds = element("td", null, "state", run.finished ? "done" : "going");
    rounds.textContent = run.kind === "damaged" ? "" : `${run.done} / ${run.planned || "?"}`;
    if (!run.finished && run.kind !== "damaged") rounds.append(progress(run));
    const report = element("td", null, "hide-small");
    if (run.kind !== "damaged") {
      const link = element("a", "report");
      link.href = `/report/${encodeURIComponent(run.name)}`;
      link.target = "_blank";
      link.rel = "noopener";
      report.append(link);
    }
    const value = run.value == null ? "" : `${run.value}`;
    const measured = element("td", value, "number");
    measured.title = run.measure;
    const epsilon = element("td", run.against ? `${run.epsilon} (${run.against})` : run.epsilon, "hide-small");
    epsilon.title = run.epsilon_of;
    if (run.caution) epsilon.append(element("div", run.caution, "small"));
    line.append(name, element("td", run.task, "hide-small"), element("td", run.method, "hide-small"), rounds, epsilon, report, measured);
    if (run.note) line.title = run.note;
    return line;
  }

  function progress(run) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", "progress");
    for (const [width, kind] of [[100, ""], [run.planned ? (100 * run.done) / run.planned : 0, "on"]]) {
      const bar = document.createElementNS(space, "rect");
      bar.setAttribute("width", `${width}%`); bar.setAttribute("height", "4"); bar.setAttribute("class", kind);
      svg.append(bar);
    }
    return svg;
  }

  function list() {
    const shown = [...runs.values()].filter(visible).sort((a, b) => a.finished - b.finished || a.name.localeCompare(b.name));
    get("runs").replaceChildren(...shown.map(row));
    const going = [...runs.values()].filter((run) => !run.finished && run.kind !== "damaged").length;
    get("about").textContent = `${about.folder}: ${runs.size} in all, ${going} not finished${about.public ? "; only what a guarantee covers" : ""}`;
    get("none").textContent = shown.length ? "" : runs.size ? "No run fits the filter." : "No run yet: sordino run FILE.toml --runs FOLDER";
  }

  async function curves() {
    get("drawn").hidden = !chosen.size;
    if (!chosen.size) return;
    const wanted = [...chosen];
    const answer = await fetch(`/curves?${new URLSearchParams(wanted.map((name) => ["run", name]))}`);
    if (wanted.join() !== [...chosen].join()) return; // another choice was made meanwhile
    const charts = await answer.json();
    get("which").textContent = wanted.join(", ");
    get("marked").hidden = !charts.some((chart) => chart.private);
    const keys = new Set(charts.map((chart) => chart.key));
    for (const [key, place] of places) if (!keys.has(key)) { place.closest("figure").remove(); places.delete(key); }
    for (const chart of charts) {
      if (!places.has(chart.key)) places.set(chart.key, figure(chart));
      drawn.update(places.get(chart.key), chart);
    }
  }

  function figure(chart) {
    const made = element("figure"), caption = element("figcaption", chart.label), place = element("div", null, "live");
    if (chart.private) caption.append(" ", element("span", "private", "tag"));
    place.id = `chart-${chart.key}`;
    made.append(caption, place);
    get("charts").append(made);
    return place;
  }

  function choose(name) {
    if (chosen.has(name)) chosen.delete(name);
    else if (chosen.size < about.most && runs.get(name)?.kind === "run") chosen.add(name);
    list();
    curves();
  }

  get("runs").addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (line && !event.target.closest("a")) choose(line.dataset.name);
  });
  get("runs").addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("tr")) choose(event.target.dataset.name); });
  get("filter").addEventListener("input", list);
  get("state").addEventListener("change", list);
  get("clear").addEventListener("click", () => { chosen.clear(); list(); curves(); });
  addEventListener("resize", () => drawn.fit());
  theme.start(() => drawn.redraw());

  const changes = new EventSource("/changes");
  changes.onmessage = (event) => {
    const changed = JSON.parse(event.data);
    for (const run of changed) runs.set(run.name, run);
    list();
    if (changed.some((run) => chosen.has(run.name))) curves();
  };
  changes.onopen = async () => { // also after a break: what happened meanwhile is read anew
    const all = await (await fetch("/runs")).json();
    runs.clear();
    for (const run of all) runs.set(run.name, run);
    if (!chosen.size) {
      const going = all.filter((run) => run.kind === "run" && !run.finished).slice(0, about.most);
      for (const run of going) chosen.add(run.name);
    }
    list();
    curves();
  };
})();
