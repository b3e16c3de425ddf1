"""Small files of each form to a data set: what is kept, what is rejected, the same bytes."""

import collections
import dataclasses
import filecmp
import json
import subprocess
import sys

import pytest

from configs import vade_9k
from experiments.evals import benchmarks
from experiments.vade_9k import build, published, settings
from tests.experiments.evals.benchmarks import files as benchmark_files
from tests.experiments.vade_9k import files
from vade_jax.data import sources
from vade_jax.models.qwen import tiny_tokenizer

CHOICES = "Find x of {}.\nChoices:\nA: 30\nB: 45"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokens")
    tiny_tokenizer.build(directory, ["Find x.", "How many are left? Choices: (A) (B)"], 512)
    return directory


def geo3k():
    """Good rows, and one of every fault."""
    llava, pic = files.llava, files.picture
    good = [llava(f"g{i}", (CHOICES.format(i), "Answer:B")) for i in range(12)]
    twice = [llava("same", (f"Is {i}?", "Yes"), image=pic(700 + i)) for i in range(2)]
    colours = [
        llava("cmyk", ("Red?", "No"), image=pic(900, "JPEG", "CMYK")),
        llava("exif", ("Tall?", "Yes."), image=files.rotated()),
    ]
    bad = [
        llava("null", ("Why?", "Yes"), image=None),
        llava("cut", ("Is it?", "Yes"), image=pic(901, "JPEG")[:-400]),
        llava("noise", ("Is it?", "Yes"), image=b"nothing"),
        llava("letter", (CHOICES.format(50), "Answer:C")),
        llava("empty", ("", "Yes")),
        llava("marks", ("<image> Is it?", "Yes")),
        llava("long", ("word " * 400, "Yes")),
        llava("g1", (CHOICES.format(1), "Answer:B")),  # again, with its id
        llava("silent"),
    ]
    return good + twice + colours + bad


REASONS = collections.Counter(
    no_image=1, bad_image=2, bad_gold=1, empty_question=1, image_count=1, too_long=1,
    duplicate=1, bad_turns=1,
)  # fmt: skip


def write_all(root):
    """Every form that is read, in the directories of the config or as one's own."""
    write, llava = files.write_parquet, files.llava
    write(root / "geo3k" / "train-0.parquet", files.LLAVA, *geo3k(), row_group_size=4)
    charts = [
        llava(f"f{i}", *[(f"Is {i} {j}?\nAnswer yes or no.", "Yes.") for j in range(4)])
        for i in range(6)
    ]
    files.write_stream(
        root / "figureqa(cauldron,llava_format)" / "data-00000.arrow", *(files.LLAVA, *charts)
    )
    solved = [llava(f"t{i}", (f"Cost {i}?", f"Add.\nIt is ${i}.50.")) for i in range(3)]
    solved += [llava("t9", ("Why?", "It is what it is and no more than that"))]
    write(root / "tabmwp(cauldron)" / "train.parquet", files.LLAVA, *solved)
    chart = files.chartqa
    asked = [chart("How many?", "12"), chart("When?", "2009"), chart("?", ["1", "2"])]
    write(root / "ChartQA" / "data" / "train-0.parquet", files.CHARTQA, *asked)
    write(root / "ChartQA" / "data" / "test-0.parquet", files.CHARTQA, chart("T", "1"))
    school = files.scienceqa
    asked = [
        school("Which?", ["fox", "hen"], 1, hint="Look."),
        school("What?", ["a", "b", "b"], 2),
        school("Who?", ["a", "b"], 0, image=None),
        school("Where?", ["a", "b"], 2),
    ]
    write(root / "ScienceQA" / "data" / "train.parquet", files.SCIENCEQA, *asked)
    verl = files.verl
    asked = [verl("<image>Find y.", "12", system=True), verl("<image><image>z", "1")]
    write(root / "rl" / "train.parquet", files.VERL, *asked)
    image = {"images": [files.struct(files.picture(3))], "answer": r"2\pi"}
    write(root / "easy.parquet", files.EASYR1, image | {"problem": "<image>Area?"})
    (root / "mine" / "pictures").mkdir(parents=True)
    (root / "mine" / "pictures" / "a.png").write_bytes(files.picture(4))
    mine = {"images": ["pictures/a.png"], "steps": ["Count."], "choices": ["no", "yes"]}
    files.write_jsonl(
        root / "mine" / "train.jsonl",
        {"id": "m1", "question": "How?", "answer": "B", **mine},
        {"id": "m2", "question": "How?", "answer": "B", "images": ["none.png"]},
        {"id": "m3", "question": "How?", "answer": "7", **mine, "choices": "no"},
    )


SUBSETS = ("geo3k", "figureqa", "tabmwp", "chartqa", "scienceqa")


def taking(root, checkpoint, *, subsets=SUBSETS, takes=None, paths=None, **changes):
    """Returns settings that take all of `subsets`, and of one's own rows."""
    takes, paths = takes or {}, paths or {}
    of = lambda name, one: dataclasses.replace(
        one, take=takes.get(name, 0), path=paths.get(name, one.path)
    )
    return settings.Build(
        **{
            "subsets": {n: of(n, s) for n, s in settings.SUBSETS.items() if n in subsets},
            "own": ("rl", "easy.parquet", "mine"),
            "source": str(root),
            "checkpoint": str(checkpoint),
            "data": settings.PromptSettings(max_prompt_length=300),
            **changes,
        }
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory, checkpoint):
    root = tmp_path_factory.mktemp("published")
    write_all(root)
    target = root / "target"
    build.build(taking(root, checkpoint), target)
    return root, target


def load(target, split):
    source = sources.rows(target, split=split)
    return [source[i] for i in range(len(source))]


def test_every_question_is_kept_or_counted_with_a_reason(built):
    _, target = built
    report = json.loads((target / "report" / "report.json").read_text())
    assert report["geo3k"]["kept"] == 16 and report["geo3k"]["rejected"] == REASONS
    kept = {name: one["kept"] for name, one in report.items()}
    assert kept == {
        **{"geo3k": 16, "figureqa": 6, "tabmwp": 3, "chartqa": 2, "scienceqa": 2},
        **{"rl": 1, "easy": 1, "mine": 1},
    }
    questions = {"geo3k": 25, "figureqa": 24, "tabmwp": 4, "chartqa": 3, "scienceqa": 4}
    for name, size in questions.items():
        one = report[name]
        rejected = sum(one["rejected"].values())
        assert one["kept"] + rejected + one["other_turns"] == size
    assert report["mine"]["rejected"] == {"bad_choices": 1, "bad_image": 1}
    assert report["scienceqa"]["rejected"] == {"bad_gold": 1, "no_image": 1}
    lines = (target / "report" / "rejects.jsonl").read_text().splitlines()
    listed = collections.Counter(json.loads(line)["subset"] for line in lines)
    rejected = {name: sum(one["rejected"].values()) for name, one in report.items()}
    assert listed == {name: number for name, number in rejected.items() if number}
    assert "| all | 48 | 48 | 16 | 32 | 29 | 3 |" in (target / "report" / "report.md").read_text()


def test_items_are_as_training_reads_them(built):
    _, target = built
    items = {i.uid: i for split in ("train", "validation") for i in load(target, split)}
    assert len(items) == 32
    first = items["geo3k:g3:0"]
    assert first.question == "Find x of 3.\nChoices:\n(A) 30\n(B) 45"
    assert (first.answer, first.kind) == ("B", "choice")
    label = lambda name, domain: {"subset": name, "domain": domain}
    geo3k = label("geo3k", "mathematics")
    assert first.metadata == {"choices": ["30", "45"], **geo3k}
    assert {u.rsplit("@")[0] for u in items if "same" in u} == {"geo3k:same"}
    assert items["geo3k:cmyk:0"].images[0].mode == "CMYK"
    assert items["tabmwp:t2:0"].answer == "2.50"
    charts = label("chartqa", "charts")
    assert items["chartqa:0"].metadata == {"tolerance": 0.05, **charts}
    assert (items["chartqa:1"].kind, items["chartqa:1"].metadata) == ("int", charts)
    school = items["scienceqa:0"]
    assert school.question == "Context: Look.\nWhich?\nChoices:\n(A) fox\n(B) hen"
    assert (school.answer, items["scienceqa:1"].answer) == ("B", "C")
    assert (items["rl:0"].question, items["rl:0"].answer) == ("<image>Find y.", "12")
    assert (items["easy:0"].question, items["easy:0"].kind) == ("<image>Area?", "expr")
    given = {"choices": ["no", "yes"], "steps": ["Count."]}
    assert items["mine:m1"].metadata == {**given, **label("mine", "own")}
    assert sum(uid.startswith("figureqa") for uid in items) == 6


def test_the_same_files_and_seed_give_the_same_bytes(built, checkpoint):
    root, target = built
    again, other = root / "again", root / "other"
    (root / "again.tmp").mkdir()  # of a build that was stopped
    (root / "again.tmp" / "train.arrow").write_text("half")
    values = dataclasses.asdict(taking(root, checkpoint, num_threads=1))
    config = f"import ml_collections\nget_config = lambda: ml_collections.ConfigDict({values!r})"
    (root / "config.py").write_text(config)
    command = [sys.executable, "-m", "experiments.build_data", f"--config={root / 'config.py'}"]
    subprocess.run([*command, f"--target={again}"], check=True)
    names = [p.relative_to(target) for p in target.rglob("*") if p.is_file()]
    assert len(names) == 6 and not (root / "again.tmp").exists()
    same, differ, lost = filecmp.cmpfiles(target, again, names, shallow=False)
    assert (len(same), differ, lost) == (6, [], [])
    build.build(taking(root, checkpoint, seed=1), other)
    uids = lambda t: [i.uid for i in load(t, "validation")]
    assert uids(other) != uids(target)


def test_takes_are_exact_and_what_is_not_needed_is_not_looked_at(built, checkpoint):
    root, _ = built
    takes = {"geo3k": 7, "figureqa": 5}
    build.build(taking(root, checkpoint, own=(), takes=takes), root / "taken")
    report = json.loads((root / "taken" / "report" / "report.json").read_text())
    assert report["geo3k"]["kept"] == 7 and report["geo3k"]["looked_at"] < 25
    names = ("kept", "looked_at", "other_turns")
    assert [report["figureqa"][name] for name in names] == [5, 5, 15]


def test_what_a_benchmark_asks_too_is_left_out(built, checkpoint, tmp_path, capsys):
    """The same words and picture as geo3k's g4; then the words of g5 alone, and nothing alike."""
    root, _ = built
    picture = published.open_source(root / "geo3k").table.read(4)["image"]["bytes"]
    asks, shown = benchmark_files.mathvista, benchmark_files.struct
    other = shown(files.picture(0b1011001110001101))
    asked = [
        asks("1", question="Find x of 4.", decoded_image=shown(picture)),
        asks("2", question="Find x of 5.", decoded_image=other),
        asks("3", question="Nobody asks this", decoded_image=shown(picture)),
    ]
    path = str(benchmark_files.save(tmp_path / "testmini.parquet", *asked))
    paths = dict.fromkeys(benchmarks.PAPER, "") | {"mathvista": path}
    for exclude, expected in ((True, ["geo3k:g4:0"]), (False, [])):
        only = {"subsets": ("geo3k",), "own": (), "benchmarks": paths, "exclude": exclude}
        build.build(taking(root, checkpoint, **only), tmp_path / str(exclude))
        lines = (tmp_path / str(exclude) / "report" / "rejects.jsonl").read_text().splitlines()
        rows = map(json.loads, lines)
        assert [row["uid"] for row in rows if row["reason"] == "in_benchmark"] == expected
        # The paper's other benchmarks have no file and are named.
        assert ("what mathverse, " in capsys.readouterr().out) == exclude


def test_the_paper_counts_add_up():
    c = vade_9k.get_config("seed=4")
    assert c.seed == 4 and settings.Build.from_dict(c.to_dict()).subsets == settings.SUBSETS
    assert settings.SUBSETS["geos"].take == 0  # all 498 that there are
    by_domain = collections.Counter()
    for name, take in settings.TABLE_3.items():
        by_domain[settings.SUBSETS[name].domain] += take
    assert by_domain == {"mathematics": 5670, "charts": 2476, "science": 1325}
    assert by_domain.total() == 9471
