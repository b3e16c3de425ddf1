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


def found(page, text):
    """Waits until the line above the answers begins with a text."""
    until(page, f"document.getElementById('found').textContent.startsWith({text!r})")


def test_what_a_model_wrote_does_not_run(chromium, tmp_path):
    path = report.write(make(tmp_path, answer=HOSTILE), items=report_run.ITEMS)
    with opened(chromium, path) as page:
        assert "hacked" not in page.title()
        shown = page.locator("#list pre").first.text_content()
        assert shown.startswith("</script><script>document.title")
