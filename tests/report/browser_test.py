"""The page in a real browser: it draws, filters, fits a phone, and nothing in it complains."""

import contextlib
import shutil
import time

import pytest

from tests.report import report_run
from tests.report.report_run import make
from vade_jax import report

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]
HOSTILE = "</script><script>document.title = 'hacked'</script><img src=x onerror=1> {}"


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=False)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return report.write(make(tmp_path_factory.mktemp("run")), items=report_run.ITEMS)


@contextlib.contextmanager
def opened(chromium, path, *, width=1280, dark=False):
    """Yields a page that is loaded and drawn; no error, warning or request may have come of it."""
    complaints = []
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        is_mobile=width < 600,
    )
    page = context.new_page()
    page.set_default_timeout(15_000)

    def said(message):
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def asked(request):
        if request.url != f"file://{path}" and not request.url.startswith("data:"):
            complaints.append(request.url)

    page.on("pageerror", lambda error: complaints.append(error))
    page.on("console", said)
    page.on("request", asked)
    page.goto(f"file://{path}")
    page.evaluate(  # charts are drawn in the next frame
        "new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))"
    )
    yield page
    assert complaints == []
    context.close()


def until(page, expression):
    """Waits until JavaScript is true. Not by wait_for_function: the page forbids eval."""
    end = time.monotonic() + 15
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(50)


def color(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def is_as_wide_as(page, width):
    return page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_drawn_and_fits(chromium, run, width, dark):
    with opened(chromium, run, width=width, dark=dark) as page:
        assert is_as_wide_as(page, width)
        charts = page.locator("[data-chart]:visible")
        assert charts.count() == 9
        assert page.locator("[data-chart]:visible:has(> svg)").count() == 9
        until(
            page,
            "[...document.images].length === 15 && "
            "[...document.images].every(i => i.complete && i.naturalWidth === 40 && i.alt)",
        )
        assert color(page) == ("rgb(20, 23, 27)" if dark else "rgb(251, 250, 248)")
        page.emulate_media(media="print")
        assert color(page) == "rgb(251, 250, 248)"  # paper is white


def test_the_theme_button_switches_and_stays(chromium, run):
    """In both themes the contrast of all text on its background is 4.5 or more (WCAG AA)."""
    theme = "document.documentElement.dataset.theme"
    with opened(chromium, run) as page:
        before = page.evaluate(theme)
        assert page.evaluate(_CONTRAST) >= 4.5
        page.click("#theme")
        after = page.evaluate(theme)
        assert after != before
        assert page.evaluate(_CONTRAST) >= 4.5
        # Chromium stores it from another process; on a busy machine one reload can be too early.
        for _ in range(20):
            page.reload()
            if page.evaluate(theme) == after:
                break
            page.wait_for_timeout(250)
        assert page.evaluate(theme) == after


def found(page, text):
    """Waits until the line above the answers begins with a text."""
    until(page, f"document.getElementById('found').textContent.startsWith({text!r})")


def test_filters_work(chromium, run):
    """With the mouse and with the keyboard."""
    with opened(chromium, run) as page:
        cards, answers = page.locator("#list .card"), page.locator("#list .answer")
        assert cards.count() == 12
        page.click("#next")
        assert cards.count() == 18 and not page.is_visible("#next")
        page.select_option("[name=step]", "3")
        found(page, "8 answers to 3 groups")
        page.select_option("[name=verdict]", "right")
        found(page, "4 answers")
        assert answers.count() == 4 and page.locator("#list .answer.wrong").count() == 0
        page.select_option("[name=subset]", "color 1")
        found(page, "2 answers")
        page.fill("[name=text]", "no such text")
        found(page, "No answer here matches")
        page.click("#filters button[type=reset]")
        found(page, "41 answers to 18 groups")
        page.fill("[name=text]", "WRONG3")
        found(page, "3 answers")
        said = answers.first.locator(".facts-line").text_content()
        assert "read as wrong3" in said and "comparison timed out" in said
        page.focus("#filters [name=text]")
        page.keyboard.press("Enter")  # sends nothing anywhere
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.type") == "reset"
        page.keyboard.press("Enter")
        found(page, "41 answers")


def test_charts_are_read_out_by_mouse_and_keys(chromium, run):
    with opened(chromium, run) as page:
        legend = page.locator("[data-chart=ratio] .legend")
        page.click("[data-chart=ratio] > svg")
        assert legend.text_content().count("at 3 steps") + legend.text_content().count("at 4 steps")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert "at 2 steps" in legend.text_content() and "0.25" in legend.text_content()
        for axis, unit in (("rollouts", "answers"), ("seconds", "seconds")):
            page.click(f"[data-axis={axis}]")
            until(
                page, f"document.querySelector('[data-chart=ratio]').textContent.endsWith('{unit}')"
            )
        page.click("[data-chart=posterior-0] > svg")
        where = page.locator("[data-chart=posterior-0] .where").text_content()
        assert where.startswith("step") and "0." in where


def test_what_a_model_wrote_does_not_run(chromium, tmp_path):
    path = report.write(make(tmp_path, answer=HOSTILE), items=report_run.ITEMS)
    with opened(chromium, path) as page:
        assert "hacked" not in page.title()
        shown = page.locator("#list pre").first.text_content()
        assert shown.startswith("</script><script>document.title")


def test_a_comparison_is_drawn(chromium, tmp_path):
    runs = [make(tmp_path / name, belief=name == "a") for name in ("a", "b")]
    path = report.write(runs[0], runs[1:], items=report_run.ITEMS)
    with opened(chromium, path, width=390) as page:
        assert is_as_wide_as(page, 390)
        page.select_option("[name=run]", "1")
        until(
            page,
            "[...document.querySelectorAll('#list .tag:first-child')]"
            ".every(t => t.textContent === 'b')",
        )


_CONTRAST = """(() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  let worst = 99;
  for (const e of document.querySelectorAll("main *, header *, nav *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest("option")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(e.namespaceURI.endsWith("svg") ? style.fill : style.color)), light(behind(e))];
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst;
})()"""
