"""The report page as a reader meets it: drawn, searched, in the dark, on a phone, by ear."""

from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from selenium.webdriver import Keys

from tests.browser.chromium import DESK, PHONE, Screen, find_chromium
from tests.docs.commands import ROOT
from tests.support.reports import (
    REPORTS,
    failing,
    hostile_failures,
    page,
    plain_failures,
)

PATHS = find_chromium()
pytestmark = pytest.mark.skipif(
    PATHS is None, reason="chromium is not installed (Debian: chromium chromium-driver)"
)

# WCAG 2.2 contrast of every visible text against the page's colour, the least first.
CONTRAST = """
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = luminance(getComputedStyle(document.body).backgroundColor);
let least = 21;
for (const element of document.querySelectorAll('body *')) {
  if (!element.checkVisibility() || !element.innerText) { continue; }
  const ink = luminance(getComputedStyle(element).color);
  least = Math.min(least, (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
}
return least;
"""


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    assert PATHS is not None
    made = Screen(PATHS, tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.mark.parametrize("name", REPORTS)
def test_every_kind_of_run_is_shown(name: str, screen: Screen) -> None:
    """With a silent console and one request, the file itself; by day, by night and on a phone.

    On a desk the last row of tiles lacks one tile at most. At 390 pixels nothing sticks out, tables
    opened or not.
    """
    for width, dark in ((DESK, False), (DESK, True), (PHONE, False)):
        screen.show(page(REPORTS[name]), width=width, dark=dark)
        assert screen.ask("return document.querySelector('#verdict').innerText")
        (request,) = screen.requests()
        assert request.startswith("file:")
        assert screen.complaints() == []
        if width == DESK:
            tops = screen.ask("""
                return [...document.querySelectorAll('#facts > div')].map((one) => one.offsetTop)
            """)
            rows = Counter(tops).values()
            assert max(rows) - min(rows) <= 1
    for script in (
        "",
        "for (const one of document.querySelectorAll('details')) { one.open = true; }",
    ):
        assert screen.ask(f"{script} return document.documentElement.scrollWidth") <= PHONE


def facts(screen: Screen) -> dict[str, str]:
    """Return the tiles of the summary: names and values."""
    found: dict[str, str] = screen.ask("""
        return Object.fromEntries([...document.querySelectorAll('#facts > div')].map((tile) => [
          tile.querySelector('dt').textContent, tile.querySelector('.value').textContent]))
    """)
    return found


@pytest.mark.parametrize(
    ("name", "has_rate"),
    [("single", False), ("interrupted", False), ("slow", False), ("million", True)],
)
def test_one_member_has_no_rate(screen: Screen, name: str, *, has_rate: bool) -> None:
    """One member has no rate; neither has an interrupted run, nor one that would show 0."""
    assert ("Rate" in facts(screen.show(page(REPORTS[name])))) is has_rate


def test_a_rejected_archive_has_no_member_counts(screen: Screen) -> None:
    """The page says that nothing was written, and the reason once."""
    found = facts(screen.show(page(REPORTS["rejected"])))
    assert (found["Written"], found.keys() & {"Members extracted", "Failed"}) == ("nothing", set())
    assert screen.ask("return document.getElementById('cause').innerText").count("overlap") == 1


def test_a_stopped_run_did_not_fail(screen: Screen) -> None:
    """The verdict says that it was stopped; members without an outcome are not failures."""
    found = facts(screen.show(page(REPORTS["stopped"])))
    assert screen.text("#verdict b") == "■ Stopped."
    assert screen.ask("return document.title").startswith("nightly.zip: stopped")
    assert (found["No outcome"], found.get("Failed")) == ("1,500", None)  # not "Failed 0"
    assert "The next command continues from here." in screen.text("#verdict")


def test_the_next_command_is_copied(screen: Screen) -> None:
    """A button beside it puts it on the clipboard, from a file and without TLS too."""
    screen.show(page(REPORTS["stopped"]))
    screen.ask("""
        document.execCommand = () => { window.pasted = document.activeElement.value; return true; };
    """)
    for clipboard in (
        "{ writeText: async (text) => { window.pasted = text; } }",
        "{ writeText: async () => { throw new Error('no'); } }",
        "undefined",  # a page that was not served over TLS has none
    ):
        screen.ask(f"""
            window.pasted = '';
            Object.defineProperty(navigator, 'clipboard', {{
                value: {clipboard}, configurable: true
            }});
            document.getElementById('copy').click();
        """)
        copied = screen.ask("return window.pasted")
        assert copied == f"s3unzip resume {REPORTS['stopped'].run} --env prod"


def test_directories_are_no_members_that_can_fail(screen: Screen) -> None:
    """The share of failures is that of the sentence at the top: of files, not of all entries."""
    assert "50\u00a0% of the members" in screen.show(
        page(replace(REPORTS["single"], members=4, directories=2, extracted=1, failed=1))
    ).text("#facts")


def test_failures_show_keys_without_the_prefix_of_the_destination(screen: Screen) -> None:
    """The table of failures has keys without the destination's prefix, and says so."""
    screen.show(page(failing(plain_failures(5))))
    assert screen.text("#failed caption small").startswith(
        "Keys below s3://acme-extracted/landing/."
    )
    keys = screen.ask(
        "return [...document.querySelectorAll('#failed tbody th')].map((one) => one.textContent)"
    )
    assert {key[:7] for key in keys} == {"import/"}


def test_failures_are_searched_and_filtered(screen: Screen) -> None:
    """Search and reason narrow the table together, and the count says how many are left."""
    failures = plain_failures()
    screen.show(page(failing(failures)))

    def rows() -> int:
        return int(
            screen.ask("return document.querySelectorAll('#failed tbody tr:not([hidden])').length")
        )

    assert rows() == 1_000
    screen.ask("document.getElementById('query').focus()")
    screen.press("ORDERS-07919")
    assert rows() == sum("orders-07919" in failure.key for failure in failures)
    ranges = "return [...CSS.highlights.get('match')].map((r) => r.endOffset - r.startOffset)"
    assert set(screen.ask(ranges)) == {len("orders-07919")}

    screen.press(Keys.BACKSPACE * 20)
    screen.ask("document.querySelector('#reasons button').click()")
    reason = screen.ask("return document.getElementById('reason').value")
    of_reason = sum(failure.reason == reason for failure in failures)
    assert (rows(), screen.text("#matches")) == (of_reason, f"{of_reason} of 1,000")

    screen.ask("document.getElementById('query').focus()")
    screen.press("no such thing")
    assert (rows(), screen.text("#matches")) == (0, "0 of 1,000")


def test_the_page_is_complete_without_its_script(screen: Screen) -> None:
    """All facts and failures are there; the search, which could not work, is not."""
    screen.show(page(failing(plain_failures(6))).partition(b"<script>")[0])
    assert screen.ask("""
        const is_seen = (id) => document.getElementById(id).checkVisibility();
        const rows = document.querySelectorAll('#failed tbody tr');
        return [rows.length, is_seen('filter'), is_seen('copy')];
    """) == [6, False, False]


def test_hostile_names_are_shown_as_text(screen: Screen) -> None:
    """Names that are markup run nothing, add no element, and show what they hide."""
    screen.show(page(failing(hostile_failures(64))))
    assert "owned" not in screen.ask("return document.title")
    assert screen.ask("return document.querySelectorAll('img, iframe, object, embed').length") == 0
    text = screen.text("#failed")
    for shown in ("</script><script>document.title='owned'</script>", "\\u202egpj.exe"):
        assert shown in text
    assert "\u202e" not in text
    assert screen.complaints() == []


def test_policy_blocks_what_is_not_the_page_s_own(screen: Screen) -> None:
    """Even markup that got in would run no script and load no image."""
    screen.show(page(REPORTS["million"]))
    screen.ask("""
        const script = document.createElement('script');
        script.textContent = 'window.injected = 1';
        document.body.append(script);
        const image = '<img src="http://127.0.0.1:9/x" onerror="window.injected = 2">';
        document.body.insertAdjacentHTML('beforeend', image);
    """)
    assert screen.ask("return window.injected") is None
    assert any("Content Security Policy" in line for line in screen.complaints())


@pytest.mark.parametrize(("width", "dark"), [(DESK, True), (PHONE, False)])
def test_accessibility(width: int, *, dark: bool, screen: Screen) -> None:
    """A screen reader finds landmarks, named tables with rows, and labelled controls.

    All text has at least the contrast of 4.5 : 1 that WCAG 2.2 asks for (level AA).
    """
    screen.show(page(failing()), width=width, dark=dark)
    assert screen.ask(CONTRAST) >= 4.5
    assert screen.ask("return document.querySelector('#failed details').open") is False
    screen.ask("document.querySelector('#failed summary').click()")
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in screen.command("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"]
    ]
    roles = Counter(role for role, _ in found)
    assert roles.keys() >= {"main", "banner", "navigation", "contentinfo", "search"}
    assert {("searchbox", "Search"), ("combobox", "Reason")} <= set(found)
    assert any(role == "table" and name.startswith("Failed members") for role, name in found)
    assert roles["row"] > 100
    assert roles["columnheader"] > 4
    assert all(name for role, name in found if role in {"button", "link", "table", "figure"})


def test_structure_of_headings_and_ids(screen: Screen) -> None:
    """There is one h1, then h2s; ids are unique; the first tab reaches the skip link."""
    screen.show(page(REPORTS["million"]))
    levels = screen.ask("return [...document.querySelectorAll('h1,h2,h3')].map((h) => h.tagName)")
    assert (levels[0], set(levels[1:])) == ("H1", {"H2"})
    ids = screen.ask("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    screen.press(Keys.TAB)
    assert screen.ask("return document.activeElement.className") == "skip"


def test_the_site_can_be_searched_from_a_folder(screen: Screen) -> None:
    """In place of a Worker, which browsers do not start there, the site has a frame."""
    shim = (ROOT / "docs" / "assets" / "iframe-worker.js").as_uri()
    screen.show(f"<!doctype html><body><script src='{shim}'></script>".encode())
    assert screen.ask("""
        const code = "addEventListener('message', (asked) => postMessage(asked.data + 1))";
        const worker = new Worker(URL.createObjectURL(new Blob([code])));
        const answer = new Promise((resolve) => worker.addEventListener('message', resolve));
        worker.postMessage(41);
        return answer.then((message) => [message.data, Worker === IFrameWorker]);
    """) == [42, True]
