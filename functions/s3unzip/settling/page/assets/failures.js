"use strict";
// The failures: how many of each reason, and a table to search and filter.

const PAGE = 100; // rows shown at a time
const FEW = 10; // failures that are shown unfolded

function showFailures(data) {
  const { failures, reasons, totals } = data;
  const lost = totals.failed + totals.missing;
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
  // Many failures begin folded, so that the timeline is on the first screen.
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
