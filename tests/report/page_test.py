"""The page is whole, shows the run's own numbers, and runs nothing that a model wrote."""

import functools
import html.parser
import json
import re
import shutil

import pytest

from tests.report import report_run
from tests.report.report_run import ITEMS, make
from vade_jax import report
from vade_jax.report import pictures
from vade_jax.store import rollout_log


class Page(html.parser.HTMLParser):
    """What a browser would make of the page: tags, text, and the embedded data."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text()
        self.tags, self.addresses, self.text, self._inside = [], [], "", []
        self.feed(self.source)
        self.data = json.loads(re.search(r'id="data">(.*?)</script>', self.source, re.DOTALL)[1])

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._inside.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "action")]

    def handle_data(self, data):
        if self._inside[-1:] not in (["script"], ["style"]):
            self.text += data


def page(workdir, *compare, **options):
    return Page(report.write(workdir, compare, **options))


def test_the_page_shows_the_numbers_of_the_run(tmp_path):
    found = page(make(tmp_path), items=ITEMS)
    ratio = found.data["charts"]["ratio"]["series"]
    assert [line["name"] for line in ratio] == ["observed", "predicted"]
    assert ratio[0]["raw"] == [round(i / 8, 4) for i in range(1, 7)]
    assert ratio[0]["rollouts"] == [12, 24, 36, 48, 60, 72]
    score = found.data["charts"]["score"]["series"][0]
    assert (score["step"], score["y"]) == ([0, 3, 6], [0.25, 0.5, 0.75])
    assert found.data["charts"]["norm"]["series"][0]["raw"] == [2, 3, 4, 5, 6, 7]
    for text in ("0.750", "0.250 at first", "24 s", "25.0 %", "62.5 %", "selector vade"):
        assert text in found.text, text
    assert 'title="step 2: 1 of 4 right" style="--rate: 0.25"' in found.source
    assert "Never right 1 prompt, 33 % of the rollouts" in found.text
    assert "What is missing" not in found.text
    # The page asks for nothing.
    assert all(re.match(r"#|data:", address) for address in found.addresses)
    assert "default-src 'none'" in found.source
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", found.source)
    assert "url(" not in found.source and "@import" not in found.source


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }} é☃'\""


def test_what_a_model_wrote_is_text(tmp_path):
    workdir = make(tmp_path / "<img src=x>")
    (workdir / "run.json").write_text(json.dumps({"settings": {"selector": {"name": HOSTILE}}}))
    rows = report_run.table(1)
    names = ("answer", "extracted", "reason", "gold", "prompt", "uid", "kind")
    rows |= {name: [HOSTILE] * len(rows["uid"]) for name in names}
    rows["metadata"] = [{"family": HOSTILE, "level": 0, "right_answer": HOSTILE}] * 12
    for step in range(1, 4):
        rollout_log.write(rollout_log.path(workdir, step), rows)
    found = page(workdir, workdir)
    assert found.tags.count("script") == 2 and "img" not in found.tags
    assert "alert(1)</" not in found.source
    assert found.data["prompts"][0][HOSTILE]["question"] == HOSTILE
    said = [a["text"] for g in found.data["answers"] for a in g["answers"]]
    assert HOSTILE in said


# ------------------------------------------------------------------------------ bad input
def rewrite(path, change):
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))


def rewrite_in(name, change, workdir):
    rewrite(workdir / name, change)


def other_schema(workdir):
    rows = report_run.table(2)
    rows = {name: rows[name] for name in ("uid", "correct", "answer")}
    rollout_log.write(rollout_log.path(workdir, 2), rows)


METRICS, CONFIG, STEP = "metrics.jsonl", "run.json", "rollouts/step_00002.parquet"
REWRITTEN = [  # file, its bytes, what the page says
    (METRICS, lambda x: x[:-20], "1 line is not a record of a step in metrics.jsonl"),
    (METRICS, lambda x: b"\xff\xfe\n[1]\n{}\n" + x, "3 lines are not a record"),
    (CONFIG, lambda _: b'{"a":', "run.json cannot be read"),
    (STEP, lambda _: b"PAR1 half", "rollouts not readable: step_00002.parquet"),
    (pictures.FILE, lambda _: b"no", "pictures.parquet cannot be read"),
]
SPOILT = [  # how, what the page says
    (lambda w: (w / METRICS).unlink(), "metrics.jsonl is missing: no curves"),
    (lambda w: (w / CONFIG).unlink(), "run.json is missing"),
    (lambda w: shutil.rmtree(w / "rollouts"), "no rollout logs"),
    (other_schema, ""),
    *((functools.partial(rewrite_in, name, change), note) for name, change, note in REWRITTEN),
]


@pytest.mark.parametrize(("spoil", "note"), SPOILT)
def test_what_is_broken_is_said_and_the_rest_is_shown(spoil, note, tmp_path):
    make(tmp_path)
    spoil(tmp_path)
    found = page(tmp_path, items=ITEMS)
    assert note in found.text
    assert ("What is missing" in found.text) == bool(note)
    assert found.data["charts"] and "Settings and versions" in found.text
    # A browser reads neither.
    assert not re.search("NaN|Infinity", json.dumps(found.data))


def test_nothing_to_show_or_nowhere_to_write_is_one_error(tmp_path):
    for empty in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="is not a run directory: it has no"):
            report.write(empty)
    assert not list(tmp_path.iterdir())
    (make(tmp_path) / "report.html").mkdir()
    with pytest.raises(ValueError, match=r"report.html cannot be written \(Is a dir"):
        report.write(tmp_path)


# ------------------------------------------------------------------------------ comparison
def test_runs_are_drawn_over_each_other(tmp_path):
    a, b = make(tmp_path / "a/seed0"), make(tmp_path / "b/seed0", belief=False)
    (b / "run.json").write_text('{"settings": {"seed": 1, "extra": {"x": 2}}}')
    path = report.write(a, [b, tmp_path / "none"])
    found = Page(path)
    assert path == a / "comparison.html" and not (a / "report.html").exists()
    assert found.data["runs"] == ["a/seed0", "b/seed0"]
    assert [s["run"] for s in found.data["charts"]["score"]["series"]] == [0, 1]
    assert "posterior-0" in found.data["charts"]
    assert "posterior-1" not in found.data["charts"]
    # Maps of a kind are on one scale: two of the three groups of the first step have no right answer.
    scales = [found.data["charts"][f"observed-{place}"]["most"] for place in (0, 1)]
    assert scales == [0.667, 0.667]
    assert {g["run"] for g in found.data["answers"]} == {0, 1}
    assert f"no run in {tmp_path / 'none'}: left out" in found.text
    assert "extra.x" in found.text and "What differs" in found.text
