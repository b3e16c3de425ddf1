"""The page in a real browser: it draws, filters, fits a phone, and nothing in it complains."""

import dataclasses

import pytest
from PIL import Image

from tests import browser
from tests.report import report_run
from tests.report.report_run import make
from vade_jax import report
from vade_jax.store import rollout_log

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.executable() is None, reason="no Chromium here"),
]
FIND = lambda _: report_run.item
HOSTILE = "</script><script>document.title = 'hacked'</script><img src=x onerror=1> {}"


@pytest.fixture(scope="module")
def chromium():
    found = browser.Browser()
    yield found
    found.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = make(tmp_path_factory.mktemp("run"))
    return report.write(workdir, find=FIND)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_drawn_and_fits(chromium, run, width, dark):
    chromium.open(run, width=width, dark=dark)
    assert chromium.errors == []
    assert [r for r in chromium.requests if not r.startswith("data:")] == [
        f"file://{run}"
    ]
    assert chromium.run("document.documentElement.scrollWidth") == width
    drawn = "[...document.querySelectorAll('[data-chart]')].filter(c => c.clientWidth)"
    assert chromium.run(f"{drawn}.length") == 8
    assert chromium.run(f"{drawn}.every(c => c.querySelector(':scope > svg'))")
    chromium.until(
        "[...document.images].length === 15 && "
        "[...document.images].every(i => i.complete && i.naturalWidth === 40 && i.alt)"
    )
    page = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert page == ("rgb(20, 23, 27)" if dark else "rgb(251, 250, 248)")


def test_text_can_be_read_in_both_themes(chromium, run):
    """The contrast of text of every color on its background is 4.5 or more (WCAG AA)."""
    chromium.open(run, width=1280)
    for _ in range(2):
        assert chromium.run(_CONTRAST) >= 4.5
        chromium.click("#theme")
        chromium.settle()


def test_the_theme_button_switches_and_stays(chromium, run):
    chromium.open(run, width=1280)
    theme = "document.documentElement.dataset.theme"
    before = chromium.run(theme)
    chromium.click("#theme")
    assert chromium.run(theme) != before
    after = chromium.run(theme)
    chromium.open(run, width=1280)
    assert chromium.run(theme) == after
    chromium.run("localStorage.clear()")


def choose(chromium, name, value):
    chromium.run(
        f"(() => {{ const e = document.getElementById('filters').elements['{name}'];"
        f"e.value = '{value}'; e.dispatchEvent(new Event('input', {{bubbles: true}})) }})()"
    )


def test_filters_work(chromium, run):
    chromium.open(run, width=1280)
    answers = "document.querySelectorAll('#list .answer').length"
    found = "document.getElementById('found').textContent"
    assert chromium.run("document.querySelectorAll('#list .card').length") == 12
    chromium.click("#next")
    assert chromium.run("document.querySelectorAll('#list .card').length") == 18
    assert chromium.run("document.getElementById('next').hidden")
    choose(chromium, "step", 3)
    chromium.until(f"{found} === '8 answers to 3 groups'")
    choose(chromium, "verdict", "right")
    chromium.until(f"{answers} === 4")
    assert chromium.run("document.querySelectorAll('#list .answer.wrong').length") == 0
    choose(chromium, "subset", "color 1")
    chromium.until(f"{answers} === 2")
    choose(chromium, "text", "no such text")
    chromium.until(f"{found}.startsWith('No answer here matches')")
    chromium.click("#filters button[type=reset]")
    chromium.until(f"{found} === '41 answers to 18 groups'")
    choose(chromium, "text", "WRONG3")
    chromium.until(f"{answers} === 3")
    facts = "document.querySelector('#list .answer .facts-line').textContent"
    assert "read as wrong3" in chromium.run(facts)
    assert "comparison timed out" in chromium.run(facts)
    assert chromium.errors == []


def test_charts_are_read_out_by_mouse_and_keys(chromium, run):
    chromium.open(run, width=1280)
    text = "document.querySelector('[data-chart=ratio] .legend').textContent"
    chromium.click("[data-chart=ratio] > svg")
    assert "step 3" in chromium.run(text) or "step 4" in chromium.run(text)
    for key in ("Home", "ArrowRight"):
        event = {"key": key, "code": key}
        chromium.send("Input.dispatchKeyEvent", type="keyDown", **event)
    assert "step 2" in chromium.run(text) and "0.25" in chromium.run(text)
    chromium.click("[data-axis=rollouts]")
    assert chromium.run(
        "document.querySelector('[data-chart=ratio]').textContent"
    ).endswith("rollouts")
    chromium.click("[data-chart=posterior-0] > svg")
    where = chromium.run(
        "document.querySelector('[data-chart=posterior-0] .where').textContent"
    )
    assert where.startswith("step") and "0." in where


def test_what_a_model_wrote_does_not_run(chromium, tmp_path):
    path = report.write(make(tmp_path, answer=HOSTILE), find=FIND)
    chromium.open(path, width=1280)
    assert "hacked" not in chromium.run("document.title")
    assert chromium.errors == []
    shown = chromium.run("document.querySelector('#list pre').textContent")
    assert shown.startswith("</script><script>document.title")


@pytest.mark.parametrize("width", [390, 1280])
def test_long_words_and_thin_pictures_fit(chromium, tmp_path, width):
    def find(uid):
        item = report_run.item(uid)
        return dataclasses.replace(item, images=(Image.new("RGB", (4, 2000)),))

    make(tmp_path)
    for step in range(1, 7):
        rows = report_run.table(step, "w" * 4000 + "{}")
        rows |= {name: ["w" * 500] * 12 for name in ("extracted", "reason")}
        rows["metadata"] = [{"family": "w" * 500}] * 12
        rollout_log.write(rollout_log.path(tmp_path, step), rows)
    chromium.open(report.write(tmp_path, find=lambda _: find), width=width)
    assert chromium.errors == []
    assert chromium.run("document.documentElement.scrollWidth") == width
    heights = "[...document.images].map(i => i.getBoundingClientRect().height)"
    assert 0 < max(chromium.run(heights)) < 300


def test_a_variant_is_shown_as_one(chromium, tmp_path):
    make(tmp_path, rollouts=False)
    rows = report_run.table(1)
    rows["uid"] = [f"{uid} picture turned 90" for uid in rows["uid"]]
    rows["metadata"] = [{"variant": "picture turned 90"}] * 12
    rollout_log.write(rollout_log.path(tmp_path, 1), rows)
    chromium.open(report.write(tmp_path, find=FIND), width=1280)
    card = "document.querySelector('#list .card')"
    chromium.until(f"{card}.querySelector('img').naturalWidth === 40")
    said = chromium.run(f"{card}.querySelector('.picture').textContent")
    assert said == "the original; the model saw it changed: turned 90"
    assert chromium.run(f"{card}.querySelector('.warn').textContent") == (
        "variant: picture turned 90"
    )


def test_filters_work_with_the_keyboard(chromium, run):
    def press(key):
        for kind in ("keyDown", "keyUp"):
            chromium.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    chromium.open(run, width=1280)
    found = "document.getElementById('found').textContent"
    chromium.run("document.querySelector('#filters [name=text]').focus()")
    chromium.send("Input.insertText", text="wrong3")
    chromium.until(f"{found}.startsWith('3 answers')")
    press("Enter")  # sends nothing anywhere
    press("Tab")
    assert chromium.run("document.activeElement.type") == "reset"
    chromium.send(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r"
    )
    chromium.until(f"{found}.startsWith('41 answers')")
    assert chromium.errors == []


def test_paper_is_white(chromium, run):
    chromium.open(run, width=1280, dark=True)
    chromium.send("Emulation.setEmulatedMedia", media="print")
    page = chromium.run("getComputedStyle(document.body).backgroundColor")
    chromium.send("Emulation.setEmulatedMedia", media="")
    assert page == "rgb(251, 250, 248)"


def test_a_comparison_is_drawn(chromium, tmp_path):
    runs = [make(tmp_path / name, belief=name == "a") for name in ("a", "b")]
    path = report.write(runs[0], runs[1:], find=FIND)
    chromium.open(path, width=390)
    assert chromium.errors == []
    assert chromium.run("document.documentElement.scrollWidth") == 390
    choose(chromium, "run", 1)
    chromium.until(
        "[...document.querySelectorAll('#list .tag:first-child')]"
        ".every(t => t.textContent === 'b')"
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
