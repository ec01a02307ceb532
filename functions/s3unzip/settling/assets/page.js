"use strict";
// Numbers and text as people read them, and elements made of text. Nothing here parses HTML.
// The space between a figure and its unit is a no-break space (\u00a0).

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB"];

function digits(value, most = 3) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: most });
}

function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

// "1 member", "2 members"
function plural(value, noun) {
  return `${count(value)} ${noun}${Math.round(value) === 1 ? "" : "s"}`;
}

// The same units and digits as the command line.
function bytes(value) {
  let power = 0;
  while (value >= 1024 && power < BINARY.length - 1) { value /= 1024; power += 1; }
  return `${power ? value.toLocaleString("en-US", { maximumFractionDigits: 1 }) : count(value)}\u00a0${BINARY[power]}`;
}

// A duration as the command line prints it: "12.3 s", "4 min 05 s", "1 h 02 min".
function duration(value) {
  if (value < 100) { return `${value.toFixed(1)}\u00a0s`; }
  const two = (part) => String(part).padStart(2, "0");
  const whole = Math.round(value);
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}\u00a0min ${two(whole % 60)}\u00a0s`
    : `${Math.floor(minutes / 60)}\u00a0h ${two(minutes % 60)}\u00a0min`;
}

// The same digits as the command line; less than a tenth of a cent keeps two of them.
function dollars(value) {
  if (value === 0) { return "$0"; }
  if (value < 0.001) { return `$${digits(value, 2)}`; }
  const places = value >= 10 ? 2 : 4;
  return `$${value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}

function share(part, whole) {
  const percent = whole ? (100 * part) / whole : 0;
  return percent > 0 && percent < 0.1 ? "under 0.1 %" : `${digits(percent, percent > 99 && percent < 100 ? 4 : 2)}\u00a0%`;
}

// An element; children are elements or text, and text stays text. Properties, never markup.
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") { made.setAttribute(name, value); } else { made[name] = value; }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Characters that show nothing or reorder their neighbours: a name must not look like another.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]/u;

const LONG = 200; // letters of a name that are shown at once

// Text of unknown origin, its hidden characters spelled out, found stretches marked.
function foreign(text, found = "") {
  const made = make("bdi");
  const low = text.toLowerCase();
  // Lowering some letters changes their number; then the places would not fit.
  const wanted = low.length === text.length ? found : "";
  let from = 0;
  while (wanted) {
    const at = low.indexOf(wanted, from);
    if (at < 0) { break; }
    spell(made, text.slice(from, at));
    spell(made.appendChild(make("mark")), text.slice(at, at + wanted.length));
    from = at + wanted.length;
  }
  spell(made, text.slice(from));
  return made;
}

// The same, the middle of a long text folded away until asked for.
function folded(text, found = "") {
  if (text.length <= LONG) { return foreign(text, found); }
  const summary = make("summary", {}, foreign(text.slice(0, LONG - 60), found), " … ", foreign(text.slice(-40), found));
  const made = make("details", { className: "folded" }, summary, foreign(text, found));
  made.open = Boolean(found) && !summary.querySelector("mark") && text.toLowerCase().includes(found);
  return made;
}

function spell(into, text) {
  let plain = "";
  for (const letter of text) {
    if (HIDDEN.test(letter)) {
      into.append(plain, make("span", { className: "escape" }, `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`));
      plain = "";
    } else {
      plain += letter;
    }
  }
  into.append(plain);
}

// columns: {name, className?, head?: true where the cell names its row}
// rows: lists of text or elements. cards: on a phone, a row becomes a card.
function table(caption, columns, rows, { note = "", cards = false, foot = null } = {}) {
  const cell = (content, at, tag) => {
    const { name, className = "", head = false } = columns[at];
    const made = make(head ? "th" : tag, { className }, content);
    if (head) { made.scope = "row"; }
    if (cards) {
      made.setAttribute("role", head ? "rowheader" : "cell");
      if (at && name && content !== "") { made.dataset.label = name; }
    }
    return made;
  };
  const line = (cells) => {
    const made = make("tr", {}, ...cells.map((content, at) => cell(content, at, "td")));
    if (cards) { made.setAttribute("role", "row"); }
    return made;
  };
  const titles = columns.map(({ name, className = "" }) => make("th", { scope: "col", className: className.replace("mono", "") }, name));
  const head = make("tr", {}, ...titles);
  const body = make("tbody", {}, ...rows.map(line));
  const made = make("table", {}, make("caption", {}, caption, note && make("small", {}, note)), make("thead", {}, head), body);
  if (foot) { made.append(make("tfoot", {}, line(foot))); }
  if (cards) {
    made.className = "cards";
    made.setAttribute("role", "table");
    head.setAttribute("role", "row");
    for (const group of [body, head.parentNode]) { group.setAttribute("role", "rowgroup"); }
    for (const title of titles) { title.setAttribute("role", "columnheader"); }
  }
  return { element: made, fill: (some) => body.replaceChildren(...some.map(line)) };
}

function bar(part, whole, tone = "batch") {
  const made = make("span", { className: "bar", "aria-hidden": "true" });
  made.style.width = `${whole ? (100 * part) / whole : 0}%`;
  made.style.setProperty("--tone", `var(--${tone})`);
  return made;
}

// The failures: how many of each reason, and a table to search and filter.

const PAGE = 100; // rows shown at a time
const FEW = 10; // failures that are shown unfolded

function showFailures(data) {
  const { failures, reasons, failed: broken, missing } = data;
  const lost = broken + missing;
  if (!failures.length && !reasons.length) { return false; }
  const query = document.getElementById("query");
  const choice = document.getElementById("reason");
  const matches = document.getElementById("matches");
  const more = document.getElementById("more");
  const indexed = failures.map(([key, reason, message, offset, task]) => ({
    key, reason, message, offset, task, low: `${key}\n${reason}\n${message}`.toLowerCase(),
  }));
  const listed = new Map();
  for (const { reason } of indexed) { listed.set(reason, (listed.get(reason) || 0) + 1); }

  const links = reasons.map(([reason]) => {
    const made = make("button", { type: "button", className: "link", "aria-pressed": "false" }, foreign(reason));
    made.addEventListener("click", () => { choice.value = choice.value === reason ? "" : reason; refresh(); });
    return listed.has(reason) ? made : make("span", { className: "mono" }, foreign(reason));
  });
  const most = Math.max(...reasons.map(([, amount]) => amount), 0);
  if (reasons.length) {
    document.getElementById("reasons").append(table("Failures by reason",
      [{ name: "Reason", head: true }, { name: "Members", className: "number" }, { name: "", className: "rest" }],
      reasons.map(([, amount, words, advice], at) => [
        make("span", {}, foreign(words), " ", links[at], make("span", { className: "quiet below" }, foreign(advice))),
        count(amount), bar(amount, most, "bad"),
      ])).element);
  }
  if (!indexed.length) {
    document.getElementById("filter").hidden = true;
    return true;
  }
  for (const reason of [...listed.keys()].sort()) {
    choice.append(make("option", { value: reason }, `${reason} (${count(listed.get(reason))})`));
  }
  const note = lost > indexed.length
    ? ` The first ${count(indexed.length)} of ${count(lost)}: s3unzip show ${data.run} --failures lists them all.` : "";
  const view = table("Failed members", [
    { name: "Key", className: "mono key", head: true }, { name: "Reason", className: "mono reason" },
    { name: "Message" }, { name: "Offset", className: "number offset" },
  ], [], { note: `Keys below ${data.destination}.${note}`, cards: true });
  // Many failures begin folded, so that the cost is on the first screen.
  const listing = make("details", { open: indexed.length <= FEW },
    make("summary", {}, `List ${plural(indexed.length, "failed member")}`), view.element);
  document.getElementById("failed").append(listing);

  let shown = PAGE;
  function show() {
    const wanted = query.value.trim().toLowerCase();
    const found = indexed.filter(({ reason, low }) => (!choice.value || reason === choice.value) && low.includes(wanted));
    view.fill(found.slice(0, shown).map(({ key, reason, message, offset, task }) => [
      folded(key || `(task ${task || "unknown"})`, wanted), foreign(reason, wanted), folded(message, wanted),
      offset === null ? "" : count(offset),
    ]));
    listing.open = listing.open || Boolean(wanted) || Boolean(choice.value);
    matches.textContent = `${count(found.length)} of ${count(indexed.length)}`
      + (found.length > shown ? `, ${count(shown)} shown` : "");
    more.hidden = !listing.open || found.length <= shown;
    reasons.forEach(([reason], at) => {
      if (listed.has(reason)) { links[at].setAttribute("aria-pressed", String(choice.value === reason)); }
    });
  }
  function refresh() { shown = PAGE; show(); }
  query.addEventListener("input", refresh);
  choice.addEventListener("change", refresh);
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  listing.addEventListener("toggle", show);
  more.addEventListener("click", () => { shown += PAGE; show(); });
  show();
  return true;
}

// Fills the page from its data block, section by section.

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
};

// A run that somebody stopped did not fail.
function ending({ verdict, reason }) {
  return verdict === "FAILED" && reason === "stopped" ? "STOPPED" : verdict;
}

function sentence(data) {
  const { members, directories, extracted, unchanged, failed, missing, verified, next } = data;
  const there = extracted + unchanged;
  const proof = verified ? "checked against the archive’s sizes and CRC-32s" : "CRC-32s trusted, not checked";
  const placed = `${plural(there, "member")} ${there === 1 ? "is" : "are"} in place, ${proof}`;
  const lost = missing ? `${plural(missing, "member")} ${missing === 1 ? "has" : "have"} no outcome; ` : "";
  const left = `${lost}${there ? placed : "nothing is known to be in place"}`;
  const goes = `${left}.${next ? " The next command continues from here." : ""}`;
  return {
    COMPLETED: there ? `${placed}.` : "There was nothing to extract.",
    COMPLETED_WITH_ERRORS: `${plural(failed, "member")} of ${count(Math.max(members - directories, failed))} failed; ${placed}.`,
    REJECTED: "Nothing was written.",
    SOURCE_CHANGED: "The archive was replaced while it was read, so the run stopped. Start again to extract the new one.",
    FAILED: goes,
    STOPPED: goes,
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
    if (!value) { continue; }
    const shown = make("dd", {}, foreign(value));
    if (name === "Next") { shown.append(" ", copier(value)); }
    document.getElementById("route").append(make("dt", {}, name), shown);
  }
}

// A button that copies a command; a page from a disk may have no clipboard but the old one.
function copier(text) {
  const made = make("button", { type: "button", id: "copy", "aria-label": "Copy the next command" }, "Copy");
  made.addEventListener("click", async () => {
    let copied = true;
    try { await navigator.clipboard.writeText(text); } catch {
      const field = made.parentNode.appendChild(make("textarea", { value: text }));
      field.select();
      copied = document.execCommand("copy");
      field.remove();
    }
    made.textContent = copied ? "Copied" : "Select it to copy";
  });
  return made;
}

function showFacts(data) {
  const { verdict, cost, requests, seconds, extracted, unchanged, tasks, bytes_in: read, bytes_out: written } = data;
  const list = document.getElementById("facts");
  const fact = (name, value, note = "", colour = "") => list.append(make("div", {}, make("dt", {}, name),
    make("dd", {}, make("div", { className: `value ${colour}` }, value), make("div", { className: "note" }, note))));
  const rejected = verdict === "REJECTED";
  if (!rejected) { showMembers(data, fact); }
  fact("Duration", duration(seconds), data.plan_seconds ? `the plan took ${duration(data.plan_seconds)}` : "");
  if (data.first_object !== null) { fact("First object", duration(data.first_object), `after ${data.first_object_since}`); }
  const done = extracted + unchanged;
  // A run that waited most of its time, between two attempts or for workers, has no rate.
  if (done > 1 && seconds && data.plan_seconds + data.task_seconds > seconds / 2) { // as the command line reckons it
    fact("Rate", make("span", {}, count(done / seconds), make("small", {}, "\u00a0members/s")), `${bytes(written / seconds)}/s written`);
  }
  if (written) { fact("Written", bytes(written), `${bytes(read)} read`); }
  if (rejected) { fact("Written", "nothing", read ? `${bytes(read)} read` : ""); }
  if (tasks > 1) { fact("Tasks", count(tasks), data.tasks_failed ? `${count(data.tasks_failed)} failed` : ""); }
  const calls = Object.keys(REQUEST_NAMES).reduce((sum, name) => sum + (requests[name] || 0), 0);
  if (calls) {
    fact("Requests", count(calls), requests.retries
      ? `${count(requests.retries)} retried, ${count(requests.throttled || 0)} throttled` : "none retried");
  }
  if (cost !== null) {
    // Small members cost by the PUT, large ones by the byte.
    const large = written > extracted * 1e6;
    const each = large ? `${dollars((cost / written) * 1e12)} a TB written` : `${dollars((cost / extracted) * 1e6)} a million members`;
    fact("Cost", dollars(cost), extracted ? each : "");
  }
  // One row, or two that are as equal as can be.
  const tiles = list.children.length;
  list.style.setProperty("--columns", tiles <= 5 ? Math.max(tiles, 3) : Math.ceil(tiles / 2));
}

function showMembers(data, fact) {
  const { extracted, unchanged, excluded, directories, failed, missing } = data;
  const asides = [
    unchanged && `${count(unchanged)} unchanged`, excluded && `${count(excluded)} not selected`,
    directories && (directories === 1 ? "1 directory" : `${count(directories)} directories`),
  ];
  fact("Members extracted", count(extracted), asides.filter(Boolean).join(", ") || `of ${count(data.members)}`);
  const members = Math.max(data.members - directories, failed + missing);
  // "Failed 0" beside members without an outcome would say that all is well.
  if (failed || !missing) { fact("Failed", count(failed), failed ? `${share(failed, members)} of the members` : "none", failed ? "bad" : ""); }
  if (missing) { fact("No outcome", count(missing), `${share(missing, members)} of the members`, "bad"); }
}

function showCost({ bill, cost }) {
  if (!bill.length) { return false; }
  const most = Math.max(...bill.map(([, , , price]) => price));
  document.getElementById("bill").append(table("Cost by service", [
    { name: "Service", head: true }, { name: "", className: "part" }, { name: "Dollars", className: "number" },
  ], bill.map(([service, item, basis, price]) => [
    make("span", {}, `${service} `, make("span", { className: "item" }, item), make("span", { className: "quiet below" }, basis)),
    bar(price, most, "segment"), dollars(price),
  ]), { note: "Counted requests and seconds at list prices; not a bill.", foot: ["Total", "", dollars(cost)] }).element);
  return true;
}

function showDetails({ details, requests, warnings }) {
  const put = (id, made) => document.getElementById(id).append(made.element);
  put("identity", table("Identity", [{ name: "Name", head: true }, { name: "Value", className: "mono" }],
    details.map(([name, value]) => [name, foreign(value)])));
  const calls = Object.entries(REQUEST_NAMES).filter(([name]) => requests[name]);
  if (calls.length) {
    put("requests", table("Requests", [{ name: "Call", head: true }, { name: "Count", className: "number" }], [
      ...calls.map(([name, title]) => [title, count(requests[name])]),
      ["of these, retries", count(requests.retries || 0)],
      ["of these, throttled", count(requests.throttled || 0)],
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
  const shown = { summary: true, failures: showFailures, cost: showCost, details: true };
  for (const [id, show] of Object.entries(shown)) {
    const section = document.getElementById(id);
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
