"use strict";
// The page is complete without this script, which adds search, a filter and a copy button.

function addFilter(form) {
  const [query, reason, matches] = ["query", "reason", "matches"].map((id) => document.getElementById(id));
  const listing = document.querySelector("#failed details");
  const links = document.querySelectorAll("button.link");
  const rows = [...listing.querySelectorAll("tbody tr")].map((row) => ({ row, text: row.textContent.toLowerCase() }));

  function show() {
    const wanted = query.value.trim().toLowerCase();
    for (const { row, text } of rows) {
      row.hidden = !text.includes(wanted) || (reason.value !== "" && reason.value !== row.dataset.reason);
      for (const folded of row.querySelectorAll(".folded")) {
        folded.open = wanted !== "" && folded.lastElementChild.textContent.toLowerCase().includes(wanted);
      }
    }
    listing.open ||= wanted !== "" || reason.value !== "";
    const count = rows.filter(({ row }) => !row.hidden).length;
    matches.textContent = `${count.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}`;
    for (const link of links) { link.setAttribute("aria-pressed", String(link.value === reason.value)); }
    mark(listing, wanted);
  }
  query.addEventListener("input", show);
  reason.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const link of links) {
    link.addEventListener("click", () => { reason.value = reason.value === link.value ? "" : link.value; show(); });
  }
  form.hidden = false;
  show();
}

// Highlight all matches without changing the elements of the page.
function mark(listing, wanted) {
  const ranges = [];
  const walker = document.createTreeWalker(listing, NodeFilter.SHOW_TEXT);
  while (wanted && walker.nextNode()) {
    const node = walker.currentNode;
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + wanted.length }));
    }
  }
  if (globalThis.Highlight) { CSS.highlights.set("match", new Highlight(...ranges)); }
}

async function copy({ target: button }) {
  const field = Object.assign(document.createElement("textarea"), { value: button.value });
  button.after(field);
  field.select(); // for `execCommand`: a page opened as a file may not write to `clipboard`, one without TLS has none
  const copied = await (async () => navigator.clipboard.writeText(button.value))().then(() => true, () => document.execCommand("copy"));
  field.remove();
  button.textContent = copied ? "Copied" : "Select it to copy";
}

const button = document.getElementById("copy");
if (button) { button.hidden = false; button.addEventListener("click", copy); }
const form = document.getElementById("filter");
if (form) { addFilter(form); }
