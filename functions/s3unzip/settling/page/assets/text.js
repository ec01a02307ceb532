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

// A power of two, exactly.
function binary(bits) {
  return `${2 ** (bits % 10)}\u00a0${BINARY[Math.floor(bits / 10)]}`;
}

function number(value) {
  if (value >= 999_950) { return `${digits(value / 1e6)}\u00a0M`; }
  if (value >= 9_999.5) { return `${digits(value / 1e3)}\u00a0k`; }
  return value >= 100 ? count(value) : digits(value);
}

// Hours and minutes, or minutes and seconds; parts that are zero are left out.
function clock(value) {
  const whole = Math.round(value);
  const parts = [[Math.floor(whole / 3600), "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  return parts.filter(([amount]) => amount).slice(0, 2).map(([amount, unit]) => `${amount}\u00a0${unit}`).join(" ");
}

// A measured time: as many decimals as its neighbours in a column.
function seconds(value) {
  if (value < 0.9995) { return `${Math.round(value * 1000)}\u00a0ms`; }
  if (value < 9.995) { return `${value.toFixed(2)}\u00a0s`; }
  return value < 99.95 ? `${value.toFixed(1)}\u00a0s` : clock(value);
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

// A round time, as on an axis.
function tick(value) {
  if (value === 0) { return "0"; }
  if (value < 1) { return `${digits(value * 1000)}\u00a0ms`; }
  return value < 60 ? `${digits(value)}\u00a0s` : clock(value);
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
