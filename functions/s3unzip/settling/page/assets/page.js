"use strict";
// Fills the page from its data block, section by section.

const KIND_NAMES = { batch: "batch", stream: "stream", copy: "copy", segment: "segment" };
const REQUEST_NAMES = {
  get: "GET", put: "PUT", head: "HEAD", list: "LIST", create: "CreateMultipartUpload", part: "UploadPart",
  copy: "UploadPartCopy", complete: "CompleteMultipartUpload", abort: "AbortMultipartUpload",
};
const VERDICTS = {
  COMPLETED: ["good", "✓ Completed."],
  COMPLETED_WITH_ERRORS: ["warn", "▲ Completed with errors."],
  REJECTED: ["bad", "✕ Rejected."],
  SOURCE_CHANGED: ["bad", "✕ Source changed."],
  FAILED: ["bad", "✕ Failed."],
  STOPPED: ["warn", "■ Stopped."],
  CONTINUES: ["warn", "… Still running."],
};

// A run that continues, or that somebody stopped, did not fail.
function ending({ verdict, reason, continues }) {
  if (continues) { return "CONTINUES"; }
  return verdict === "FAILED" && reason === "stopped" ? "STOPPED" : verdict;
}

function sentence(data) {
  const { totals, verified } = data;
  const { members, directories, extracted, unchanged, failed, missing } = totals;
  const there = extracted + unchanged;
  const proof = verified ? "checked against the archive’s sizes and CRC-32s" : "CRC-32s trusted, not checked";
  const placed = `${plural(there, "member")} ${there === 1 ? "is" : "are"} in place, ${proof}`;
  const lost = missing ? `${plural(missing, "member")} ${missing === 1 ? "has" : "have"} no outcome; ` : "";
  const left = `${lost}${there ? placed : "nothing is known to be in place"}`;
  return {
    COMPLETED: there ? `${placed}.` : "There was nothing to extract.",
    COMPLETED_WITH_ERRORS: `${plural(failed, "member")} of ${count(Math.max(members - directories, failed))} failed; ${placed}.`,
    REJECTED: "Nothing was written.",
    SOURCE_CHANGED: "The archive was replaced while it was read, so the run stopped. Start again to extract the new one.",
    FAILED: `${left}. A redrive continues from here.`,
    STOPPED: `${left}. A redrive continues from here.`,
    CONTINUES: `${left}. A later report replaces this one.`,
  }[ending(data)];
}

function showHeader(data) {
  const { archive, reason, message, offset, advice, source, destination, started, run, next } = data;
  const [colour, words] = VERDICTS[ending(data)];
  document.title = `${archive}: ${words.slice(2, -1).toLowerCase()} · s3unzip`;
  document.getElementById("archive").append(foreign(archive));
  document.getElementById("verdict").append(make("b", { className: colour }, words), sentence(data));
  if (reason || message) {
    const cause = document.getElementById("cause");
    cause.hidden = false;
    const place = offset === null ? "" : ` at byte ${count(offset)}`;
    cause.append(foreign(message || ""), " ", reason ? make("code", {}, foreign(reason), place) : "");
    if (advice) { cause.append(make("span", { className: "quiet below" }, foreign(advice.replaceAll(" RUN", ` ${run}`)))); }
  }
  const when = started ? `${new Date(started * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC` : "";
  for (const [name, value] of [["Source", source], ["Destination", destination], ["Started", when], ["Run", run], ["Next", next]]) {
    if (value) { document.getElementById("route").append(make("dt", {}, name), make("dd", {}, foreign(value))); }
  }
}

function showFacts({ verdict, totals, rates, phases }) {
  const { requests, seconds: took, idle_seconds: idle, extracted, unchanged } = totals;
  const list = document.getElementById("facts");
  const fact = (name, value, note = "", colour = "") => list.append(make("div", {}, make("dt", {}, name),
    make("dd", {}, make("div", { className: `value ${colour}` }, value), make("div", { className: "note" }, note))));
  const rejected = verdict === "REJECTED";
  if (!rejected) { showMembers(totals, fact); }
  const parts = phases.map(([name, start, stop]) => `${name} ${seconds(stop - start)}`).join(", ");
  fact("Duration", duration(took), idle > took / 5 ? `interrupted for ${duration(idle)}` : parts);
  if (totals.first_object !== null) { fact("First object", duration(totals.first_object), `after ${totals.first_object_since}`); }
  const done = extracted + unchanged;
  if (done > 1 && took && idle <= took / 5) { // as the command line reckons it
    fact("Rate", make("span", {}, count(done / took), make("small", {}, "\u00a0members/s")),
      `${bytes(totals.bytes_out / took)}/s written`);
  }
  if (totals.bytes_out) { fact("Written", bytes(totals.bytes_out), `${bytes(totals.bytes_in)} read`); }
  if (rejected) { fact("Written", "nothing", totals.bytes_in ? `${bytes(totals.bytes_in)} read` : ""); }
  if (totals.tasks > 1) {
    fact("Tasks", count(totals.tasks), [
      rates.max_at_once && `at most ${count(rates.max_at_once)} at once`,
      totals.tasks_failed && `${count(totals.tasks_failed)} failed`,
    ].filter(Boolean).join(", "));
  }
  const calls = Object.entries(REQUEST_NAMES).reduce((sum, [name]) => sum + (requests[name] || 0), 0);
  if (calls) {
    fact("Requests", count(calls), requests.retries
      ? `${count(requests.retries)} retried, ${count(requests.throttled || 0)} throttled` : "none retried");
  }
  if (totals.cost !== null) {
    // Small members cost by the PUT, large ones by the byte.
    const large = totals.bytes_out > extracted * 1e6;
    const each = large ? `${dollars((totals.cost / totals.bytes_out) * 1e12)} a TB written` : `${dollars((totals.cost / extracted) * 1e6)} a million members`;
    fact("Cost", dollars(totals.cost), extracted ? each : "");
  }
  // One row, or two that are as equal as can be.
  const tiles = list.children.length;
  list.style.setProperty("--columns", tiles <= 5 ? Math.max(tiles, 3) : Math.ceil(tiles / 2));
}

function showMembers(totals, fact) {
  const asides = [
    totals.unchanged && `${count(totals.unchanged)} unchanged`, totals.excluded && `${count(totals.excluded)} not selected`,
    totals.directories && (totals.directories === 1 ? "1 directory" : `${count(totals.directories)} directories`),
  ];
  fact("Members extracted", count(totals.extracted), asides.filter(Boolean).join(", ") || `of ${count(totals.members)}`);
  const { failed, missing } = totals;
  const members = Math.max(totals.members - totals.directories, failed + missing);
  fact("Failed", count(failed), failed ? `${share(failed, members)} of the members` : "none", failed ? "bad" : "");
  if (missing) { fact("No outcome", count(missing), `${share(missing, members)} of the members`, "bad"); }
}

function ended(data) {
  return Math.max(data.phases.reduce((last, [, , stop]) => Math.max(last, stop), 0), 1e-3);
}

function showTimeline(data) {
  const { phases, rows } = data;
  if (!rows.length) { return false; }
  const step = (name) => phases.filter(([phase]) => phase === name).map(([phase, start, stop]) => ({
    group: phase, colour: "phase", tall: true, from: start, to: stop, start, stop,
    words: `${phase}: ${seconds(start)} to ${seconds(stop)}, ${seconds(stop - start)}`,
  }));
  const tasks = rows.map(([kind, amount, first, last, start, stop, members]) => ({
    group: KIND_NAMES[kind], colour: kind, from: first, to: last, start, stop,
    words: amount === 1
      ? `${kind}: ${seconds(first)} to ${seconds(last)}, ${plural(members, "member")}`
      : `${count(amount)} ${kind} tasks: ${seconds(first)} to ${seconds(last)}, median ${seconds(stop - start)}`,
  }));
  const before = ["plan", "scan", "scan, link", "link", "extract"].flatMap(step);
  const kinds = [...new Set(rows.map(([kind]) => kind))];
  const grouped = rows.some(([, amount]) => amount > 1);
  const parts = phases.map(([name, start, stop]) => `${name} ${seconds(stop - start)}`);
  gantt(document.getElementById("gantt"), {
    title: "Tasks over time", end: ended(data), lines: [...before, ...tasks, ...step("report")],
    finding: `${parts.join(", ")}.${grouped ? " Each row of tasks stands for several that began one after the other." : ""}`,
    keys: [...(phases.length ? [["step", "phase"]] : []), ...kinds.map((kind) => [`${kind} task`, kind]),
      ...(grouped ? [["solid: the median task of the row; pale: from its first start to its last stop", "phase", true]] : [])],
    columns: [{ name: "Row", head: true }, { name: "Tasks", className: "number" }, { name: "From", className: "number" },
      { name: "To", className: "number" }, { name: "Median task", className: "number" }, { name: "Members", className: "number" }],
    rows: [
      ...phases.map(([name, start, stop]) => [name, "", seconds(start), seconds(stop), "", ""]),
      ...rows.map(([kind, amount, first, last, start, stop, members]) => [
        KIND_NAMES[kind], count(amount), seconds(first), seconds(last), seconds(stop - start), count(members)]),
    ],
  });
  return true;
}

function showThroughput(data) {
  const { step, workers, members, bytes: written } = data.rates;
  // One task has no course that is worth a chart; the summary has its rate.
  if (data.totals.tasks < 2 || workers.filter((value) => value > 0).length < 3) { return false; }
  const end = ended(data);
  const host = document.getElementById("rates");
  const one = (title, values, colour, format, incrs) => {
    const peak = values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
    const busy = values.filter((value) => value > 0).sort((a, b) => a - b);
    steps(host, {
      title, values, step, end, colour, format, incrs,
      words: (at) => `${tick(at * step)}: ${format(values[at])}`,
      finding: busy.length
        ? `Peak ${format(values[peak])} at ${tick(peak * step)}, median ${format(busy[Math.floor(busy.length / 2)])}.` : "None.",
      columns: [{ name: "From", head: true }, { name: title, className: "number" }],
      rows: values.map((value, at) => [tick(at * step), `${format(value)}`]),
    });
  };
  if (data.totals.extracted > 1) { one("Members a second", members, "batch", (value) => `${number(value)}/s`); }
  one("Bytes written a second", written, "stream", (value) => `${bytes(value)}/s`, BINARY_STEPS);
  one("Tasks running", workers, "phase", number);
  return true;
}

function showDistribution({ durations, sizes, slowest }) {
  // A histogram of one bar says nothing that a sentence does not.
  const shown = [durations.tasks.filter(Boolean).length > 1, sizes.length > 1];
  if (shown[0]) {
    const { step, tasks, median, p95, longest } = durations;
    const span = (at) => `${tick(at * step)} to ${tick((at + 1) * step)}`;
    const total = tasks.reduce((sum, amount) => sum + amount, 0);
    bars(document.getElementById("durations"), {
      title: "Task durations", counts: tasks, colour: "batch", edge: (at) => tick(at * step),
      finding: `Median ${seconds(median)}, 95 % within ${seconds(p95)}, longest ${seconds(longest)}.`,
      words: (at) => `${span(at)}: ${plural(tasks[at], "task")}`,
      columns: [{ name: "Duration", head: true }, { name: "Tasks", className: "number" }, { name: "Share", className: "number" }],
      rows: tasks.map((amount, at) => [span(at), count(amount), share(amount, total)]),
    });
  }
  if (shown[1]) { showSizes(sizes); }
  document.querySelector("#distribution .pair").classList.toggle("single", shown[0] !== shown[1]);
  if (slowest.length > 1) { showSlowest(slowest); }
  return shown[0] || shown[1] || slowest.length > 1;
}

function showSlowest(slowest) {
  const longest = slowest[0][3];
  document.getElementById("slowest").append(table("Slowest tasks", [
    { name: "Task", className: "mono", head: true }, { name: "Began", className: "number" },
    { name: "Took", className: "number" }, { name: "", className: "wide" }, { name: "Members", className: "number" },
    { name: "Written", className: "number" }, { name: "Retries", className: "number" },
    { name: "Throttled", className: "number" }, { name: "Failed", className: "number" },
  ], slowest.map(([task, kind, start, took, members, written, failed, retries, throttled]) => [
    foreign(task), seconds(start), seconds(took), bar(took, longest, kind), count(members), bytes(written),
    count(retries), count(throttled), count(failed),
  ]), { cards: true }).element);
}

function showSizes(sizes) {
  const first = sizes[0][0];
  const last = sizes[sizes.length - 1][0];
  const bins = Array.from({ length: last - first + 1 }, (_, at) => sizes.find(([bits]) => bits === first + at) || [first + at, 0, 0]);
  const total = sizes.reduce((sum, [, members]) => sum + members, 0);
  const all = sizes.reduce((sum, [, , weight]) => sum + weight, 0);
  const span = (bits) => (bits === 0 ? "empty" : bits === 1 ? "1 B" : `${binary(bits - 1)} to ${binary(bits)}`);
  let seen = 0;
  const middle = sizes.find(([, members]) => { seen += members; return 2 * seen >= total; });
  const top = sizes.reduce((best, bin) => (bin[2] > best[2] ? bin : best));
  bars(document.getElementById("sizes"), {
    title: "Member sizes", counts: bins.map(([, members]) => members), colour: "stream",
    edge: (at) => (first + at === 0 ? "0 B" : binary(first + at - 1)),
    finding: `Median ${span(middle[0])}.${all ? ` ${share(top[2], all)} of the bytes are in members of ${span(top[0])}.` : ""}`,
    words: (at) => `${span(bins[at][0])}: ${plural(bins[at][1], "member")}, ${bytes(bins[at][2])}`,
    columns: [{ name: "Size", head: true }, { name: "Members", className: "number" }, { name: "Share", className: "number" }, { name: "Bytes", className: "number" }],
    rows: bins.map(([bits, members, weight]) => [span(bits), count(members), share(members, total), bytes(weight)]),
  });
}

function showForecast({ comparisons, costs, totals, difference }) {
  const units = { seconds, dollars, count, bytes };
  const change = (forecast, actual) => {
    if (!forecast || actual === null) { return ""; }
    const percent = Math.round((100 * (actual - forecast)) / forecast);
    return percent === 0 ? "as forecast" : `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
  };
  if (comparisons.length) {
    document.getElementById("comparison").append(table("Forecast against actual", [
      { name: "", head: true }, { name: "Forecast", className: "number" }, { name: "Actual", className: "number" },
      { name: "Difference", className: "number" },
    ], comparisons.map(([name, unit, forecast, actual, low, high]) => [
      name,
      make("span", {}, units[unit](forecast), low !== null && high !== null
        ? make("span", { className: "quiet below" }, `${units[unit](low)} to ${units[unit](high)}`) : null),
      actual === null ? "" : units[unit](actual), change(forecast, actual),
    ]), { note: difference }).element);
  }
  if (costs.length) {
    const sum = (column) => {
      const known = costs.map((line) => line[column]).filter((value) => value !== null);
      return known.length ? known.reduce((a, b) => a + b, 0) : null;
    };
    const money = (value) => (value === null ? "" : dollars(value));
    const most = Math.max(...costs.map(([, , , forecast, actual]) => actual ?? forecast));
    document.getElementById("costs").append(table("Cost by service", [
      { name: "Service", head: true }, { name: "", className: "part" }, { name: "Forecast", className: "number" },
      { name: "Actual", className: "number" },
    ], costs.map(([service, item, basis, forecast, actual]) => [
      make("span", {}, `${service} `, make("span", { className: "item" }, item), make("span", { className: "quiet below" }, basis)),
      bar(actual ?? forecast, most, "segment"), money(forecast), money(actual),
    ]), {
      note: totals.cost === null ? "" : "Counted requests and seconds at list prices; not a bill.",
      foot: ["Total", "", money(sum(3)), money(sum(4))],
    }).element);
  }
  return comparisons.length > 0 || costs.length > 0;
}

function showDetails({ details, totals, warnings }) {
  const put = (id, made) => document.getElementById(id).append(made.element);
  put("identity", table("Identity", [{ name: "Name", head: true }, { name: "Value", className: "mono" }],
    details.map(([name, value]) => [name, foreign(value)])));
  const calls = Object.entries(REQUEST_NAMES).filter(([name]) => totals.requests[name]);
  if (calls.length) {
    put("requests", table("Requests", [{ name: "Call", head: true }, { name: "Count", className: "number" }], [
      ...calls.map(([name, title]) => [title, count(totals.requests[name])]),
      ["of these, retries", count(totals.requests.retries || 0)],
      ["of these, throttled", count(totals.requests.throttled || 0)],
    ]));
  }
  if (warnings.length) {
    put("warnings", table("Warnings", [{ name: "Warning", head: true }, { name: "Count", className: "number" }],
      warnings.map(([code, amount, words]) => [make("span", {}, foreign(words), " ", foreign(code)), count(amount)]), { note: "Oddities that were let pass." }));
  }
}

function showPage(data) {
  showHeader(data);
  showFacts(data);
  const shown = {
    summary: true, failures: showFailures, timeline: showTimeline, throughput: showThroughput,
    distribution: showDistribution, forecast: showForecast, details: true,
  };
  for (const [id, show] of Object.entries(shown)) {
    const section = document.getElementById(id);
    section.hidden = false; // a chart takes its width from the page
    section.hidden = show !== true && !show(data);
    if (!section.hidden) {
      document.getElementById("sections").append(make("li", {},
        make("a", { href: `#${id}` }, section.querySelector("h2").textContent)));
    }
  }
  showDetails(data);
  document.getElementById("version").textContent = `s3unzip ${data.version}`;
}

showPage(JSON.parse(document.getElementById("data").textContent));
