"""Small files of each form through the command: what is kept, what is rejected, the same bytes."""

import collections
import filecmp
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import default, vade_9k
from experiments import build_data, data_audit, datasets
from tests.data import published
from tests.evals.benchmarks import files
from vade_jax.data import loading, prompts, shards, sources, tokens
from vade_jax.evals import benchmarks

ROOT = pathlib.Path(__file__).parents[2]
CHOICES = "Find x of {}.\nChoices:\nA: 30\nB: 45"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokens")
    tokens.build(directory, ["Find x.", "How many are left? Choices: (A) (B)"], 512)
    return directory


def geo3k():
    """Good rows, and one of every fault."""
    llava, pic = published.llava, published.picture
    good = [llava(f"g{i}", (CHOICES.format(i), "Answer:B")) for i in range(12)]
    twice = [llava("same", (f"Is {i}?", "Yes"), image=pic(700 + i)) for i in range(2)]
    colours = [
        llava("cmyk", ("Red?", "No"), image=pic(900, "JPEG", "CMYK")),
        llava("exif", ("Tall?", "Yes."), image=published.rotated()),
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
    write, llava = published.write_parquet, published.llava
    write(
        root / "geo3k" / "train-0.parquet", published.LLAVA, *geo3k(), row_group_size=4
    )
    charts = [
        llava(f"f{i}", *[(f"Is {i} {j}?\nAnswer yes or no.", "Yes.") for j in range(4)])
        for i in range(6)
    ]
    published.write_stream(
        root / "figureqa(cauldron,llava_format)" / "data-00000.arrow",
        *(published.LLAVA, *charts),
    )
    solved = [llava(f"t{i}", (f"Cost {i}?", f"Add.\nIt is ${i}.50.")) for i in range(3)]
    solved += [llava("t9", ("Why?", "It is what it is and no more than that"))]
    write(root / "tabmwp(cauldron)" / "train.parquet", published.LLAVA, *solved)
    chart = published.chartqa
    asked = [chart("How many?", "12"), chart("When?", "2009"), chart("?", ["1", "2"])]
    write(root / "ChartQA" / "data" / "train-0.parquet", published.CHARTQA, *asked)
    write(
        root / "ChartQA" / "data" / "test-0.parquet", published.CHARTQA, chart("T", "1")
    )
    school = published.scienceqa
    asked = [
        school("Which?", ["fox", "hen"], 1, hint="Look."),
        school("What?", ["a", "b", "b"], 2),
        school("Who?", ["a", "b"], 0, image=None),
        school("Where?", ["a", "b"], 2),
    ]
    write(root / "ScienceQA" / "data" / "train.parquet", published.SCIENCEQA, *asked)
    verl = published.verl
    asked = [verl("<image>Find y.", "12", system=True), verl("<image><image>z", "1")]
    write(root / "rl" / "train.parquet", published.VERL, *asked)
    image = {"images": [published.struct(published.picture(3))], "answer": r"2\pi"}
    write(root / "easy.parquet", published.EASYR1, image | {"problem": "<image>Area?"})
    (root / "mine" / "pictures").mkdir(parents=True)
    (root / "mine" / "pictures" / "a.png").write_bytes(published.picture(4))
    mine = {"images": ["pictures/a.png"], "steps": ["Count."], "choices": ["no", "yes"]}
    published.write_jsonl(
        root / "mine" / "train.jsonl",
        {"id": "m1", "question": "How?", "answer": "B", **mine},
        {"id": "m2", "question": "How?", "answer": "B", "images": ["none.png"]},
        {"id": "m3", "question": "How?", "answer": "7", **mine, "choices": "no"},
    )


SUBSETS = ("geo3k", "figureqa", "tabmwp", "chartqa", "scienceqa")


def config(root, checkpoint, **changes):
    c = vade_9k.get_config()
    for name in c.subsets:
        c.subsets[name].take = 0
        if name not in SUBSETS:
            c.subsets[name].path = ""
    c.own = ("rl", "easy.parquet", "mine")
    c.source, c.checkpoint = str(root), str(checkpoint)
    c.data.max_prompt_length = 300
    c.update(changes)
    return c


@pytest.fixture(scope="module")
def built(tmp_path_factory, checkpoint):
    root = tmp_path_factory.mktemp("published")
    write_all(root)
    target = root / "target"
    build_data.build(config(root, checkpoint), target)
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
    assert (
        "| all | 48 | 48 | 16 | 32 | 29 | 3 |"
        in (target / "report" / "report.md").read_text()
    )


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
    assert (items["rl:0"].question, items["rl:0"].answer) == ("Find y.", "12")
    assert (items["easy:0"].question, items["easy:0"].kind) == ("<image>Area?", "expr")
    given = {"choices": ["no", "yes"], "steps": ["Count."]}
    assert items["mine:m1"].metadata == {**given, **label("mine", "own")}
    assert sum(uid.startswith("figureqa") for uid in items) == 6


def test_the_audit_of_training_keeps_all_and_counts_the_same_tokens(built, checkpoint):
    root, target = built
    c = config(root, checkpoint)
    builder = build_data.datasets.prompt_builder(c, tokens.Tokenizer.load(checkpoint))
    index = json.loads((target / "index.json").read_text())
    for split in ("train", "validation"):
        source = sources.rows(target, split=split)
        kept, report = prompts.audit(source, builder)
        assert not report.rejects and list(kept) == list(range(len(source)))
        uids = [source[i].uid for i in range(len(source))]
        assert uids == [row["uid"] for row in index[split]] == sorted(uids)
        for i, row in enumerate(index[split]):
            prompt = builder(source[i])
            patches = sum(x.shape[0] * x.shape[1] // 14**2 for x in prompt.images)
            assert row["num_tokens"] == prompt.length
            assert row["num_patches"] == patches
    tall = next(
        r for s in ("train", "validation") for r in index[s] if "exif" in r["uid"]
    )
    assert tall["num_patches"] == 56 * 112 // 14**2 and len(tall["sha256"]) == 64


def test_rows_are_mapped_and_opened_by_file_too(built):
    _, target = built
    train = sources.rows(target / "train.arrow", all_columns=True)
    row = train.row(np.int64(3))
    assert {"subset", "domain", "sha256", "num_tokens"} <= row.keys()
    with pytest.raises(ValueError, match=r"train\.arrow and validation\.arrow: name"):
        sources.rows(target)


def test_the_same_files_and_seed_give_the_same_bytes(built, checkpoint):
    root, target = built
    again, other = root / "again", root / "other"
    (root / "again.tmp").mkdir()  # of a build that was stopped
    (root / "again.tmp" / "train.arrow").write_text("half")
    build_data.build(config(root, checkpoint, num_threads=0), again)
    names = [p.relative_to(target) for p in target.rglob("*") if p.is_file()]
    assert len(names) == 6 and not (root / "again.tmp").exists()
    same, differ, lost = filecmp.cmpfiles(target, again, names, shallow=False)
    assert (len(same), differ, lost) == (6, [], [])
    build_data.build(config(root, checkpoint, seed=1), other)
    uids = lambda t: [i.uid for i in load(t, "validation")]
    assert uids(other) != uids(target)


def test_takes_are_exact_and_what_is_not_needed_is_not_looked_at(built, checkpoint):
    root, _ = built
    c = config(root, checkpoint, own=())
    c.subsets.geo3k.take, c.subsets.figureqa.take = 7, 5
    build_data.build(c, root / "taken")
    report = json.loads((root / "taken" / "report" / "report.json").read_text())
    assert report["geo3k"]["kept"] == 7 and report["figureqa"]["kept"] == 5
    assert report["geo3k"]["looked_at"] < 25
    assert report["figureqa"]["looked_at"] == 5
    assert report["figureqa"]["other_turns"] == 15


def test_pictures_are_in_one_split_alone(tmp_path, checkpoint):
    shared = lambda i: published.picture(i // 4)
    rows = [published.llava(i, (f"Is {i}?", "Yes"), image=shared(i)) for i in range(40)]
    rows = [row | {"id": str(row["id"])} for row in rows]
    published.write_parquet(tmp_path / "a.parquet", published.LLAVA, *rows)
    c = config(tmp_path, checkpoint, own=("a.parquet",), validation=0.25)
    for name in SUBSETS:
        c.subsets[name].path = ""
    build_data.build(c, tmp_path / "out")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    hashes = [
        {r["uid"].split(":")[1] for r in index[s]} for s in ("train", "validation")
    ]
    groups = [{int(name) // 4 for name in found} for found in hashes]
    assert len(hashes[0]) == 32 and len(hashes[1]) == 8 and not groups[0] & groups[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, _: c.subsets.geo3k.update(path="geo3"), "has no 'geo3'"),
        (lambda c, _: c.subsets.geo3k.update(take=9999), "has only 25 rows"),
        (
            lambda c, _: c.subsets.geo3k.update(take=20),
            "geo3k has 16 of 20, rejected {'bad_gold'",
        ),
        (lambda c, _: c.subsets.geo3k.update(take=-1), "must be at least 0"),
        (lambda c, _: c.update(checkpoint="none"), "tokenizer.json does not exist"),
        (lambda c, _: c.update(validation=1.0), "is a share between 0 and 1"),
        (lambda c, _: c.update(validation=0.01), "leaves none for validation"),
        (lambda c, _: c.update(per_row=0), "per_row=0: must be at least 1"),
        (lambda c, _: c.update(seed=-1), "seed=-1: must be in 0"),
        (lambda c, _: c.update(own=("mine", "mine")), "is called 'mine' already"),
        (lambda c, root: c.update(own=(str(root / "odd.jsonl"),)), "no known form has"),
    ],
)
def test_a_mistake_is_one_clear_error(built, checkpoint, tmp_path, change, message):
    root, _ = built
    published.write_jsonl(tmp_path / "odd.jsonl", {"ask": "?", "say": "!"})
    c = config(root, checkpoint, own=())
    with c.ignore_type():
        change(c, tmp_path)
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        build_data.build(c, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rejects_are_listed_where_no_split_can_be_made(built, checkpoint, tmp_path):
    c = config(built[0], checkpoint, own=(), validation=0.01)
    with pytest.raises(ValueError, match="leaves none for validation"):
        build_data.build(c, tmp_path / "out")
    rejects = (tmp_path / "out.tmp" / "report" / "rejects.jsonl").read_text()
    assert len(rejects.splitlines()) >= sum(REASONS.values())


def test_a_target_that_cannot_be_made_is_one_clear_error(built, checkpoint, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/out cannot be written: .*Not a dir"):
        build_data.build(config(built[0], checkpoint), tmp_path / "file" / "out")


def test_fewer_are_taken_where_that_is_allowed(built, checkpoint, tmp_path):
    root, target = built
    c = config(root, checkpoint, own=(), allow_fewer=True)
    c.subsets.geo3k.take = 20
    build_data.build(c, tmp_path / "out")
    with pytest.raises(ValueError, match="exists: remove it"):
        build_data.build(c, target)


def test_the_audit_finds_what_a_benchmark_asks_too(built, tmp_path):
    root, target = built
    rows = shards.open_shards(root / "geo3k").take([4])
    image = next(row for *_, row in rows)["image"]["bytes"]
    asked = [
        files.mathvista(
            "1", question="Find x of 4.", decoded_image=files.struct(image)
        ),
        files.mathvista("2", question="Is 1?", decoded_image=files.struct(image)),
        files.mathvista("3", question="Nobody asks this"),
    ]
    path = files.save(tmp_path / "testmini.parquet", *asked)
    paths = dict.fromkeys(benchmarks.PAPER, "") | {"mathvista": str(path)}
    data_audit.check(paths)
    table = data_audit.audit(target, paths, benchmarks.BENCHMARKS)
    found = json.loads((target / "report" / "audit.json").read_text())["mathvista"]
    both = {
        (m["uid"], m["benchmark_uid"])
        for m in found["matches"]
        if m["same_question"] and m["bits"] <= 4
    }
    assert both == {("geo3k:g4:0", "mathvista:1")}
    assert found["both"] == 1 and found["same_question"] == 2
    assert "| mathvista | 3 | 2 |" in table and "want of a file: mathverse" in table
    (target / "report" / "audit.json").unlink()
    (target / "report" / "audit.md").unlink()
    with pytest.raises(ValueError, match="is no built data set"):
        data_audit.audit(tmp_path, paths, benchmarks.BENCHMARKS)
    with pytest.raises(ValueError, match="no benchmark has a file"):
        data_audit.check(dict.fromkeys(paths, ""))
    with pytest.raises(ValueError, match="does not exist"):
        data_audit.check({"mathvista": "none.parquet"})


def test_the_paper_counts_add_up():
    c = vade_9k.get_config("seed=4")
    takes = {name: s.take for name, s in c.subsets.items()}
    assert takes.pop("geos") == 0 and sum(takes.values()) == 9471 - 498
    by_domain = collections.Counter()
    for name, (_, take, domain) in vade_9k.SUBSETS.items():
        by_domain[domain] += take
        assert c.subsets[name].domain == domain
    assert sorted(by_domain.values()) == [1325, 2476, 5670] and c.seed == 4


def test_a_run_takes_both_splits_of_the_directory(built, checkpoint, tmp_path):
    _, target = built
    c = default.get_config()
    c.data.train = c.data.validation = str(target)
    c.data.instruction, c.num_prompts = "", 4
    c.sampler.arrays = ConfigDict({"category": "subset"})
    with loading.Pool(2) as pool:
        data = datasets.load(c, str(checkpoint), str(tmp_path), pool.map)
    index = json.loads((target / "index.json").read_text())
    for split in ("train", "validation"):
        found = getattr(data, split)
        assert [found[i].uid for i in range(len(found))] == [
            row["uid"] for row in index[split]
        ]
    first = data.train[0]
    assert first.metadata["subset"] == first.uid.split(":")[0]
    subsets = [data.train[i].metadata["subset"] for i in range(len(data.train))]
    assert data.arrays["category"].tolist() == [
        sorted(set(subsets)).index(name) for name in subsets
    ]


def test_a_run_that_can_use_no_row_says_why(built, checkpoint, tmp_path):
    _, target = built
    c = default.get_config()
    c.data.train = c.data.validation = str(target)
    c.data.min_pixels = c.data.max_pixels = 12544
    with pytest.raises(ValueError, match=r"none of its .*{'bad_image': .*at least 4 x"):
        datasets.load(c, str(checkpoint), str(tmp_path))


def test_a_stop_by_hand_is_one_line(tmp_path):
    for target, said in ((tmp_path / "out", "was not made"), (tmp_path, "is whole")):
        stopped = pytest.raises(SystemExit, match=rf"stopped, {target} {said}$")
        with stopped, build_data._stops(target):
            raise KeyboardInterrupt


def test_the_command(built, checkpoint, tmp_path):
    root, _ = built
    command = [sys.executable, "-m", "experiments.build_data"]
    command += ["--config=configs/vade_9k.py", f"--target={tmp_path / 'out'}"]
    command += [f"--source={root}", f"--checkpoint={checkpoint}"]
    without = [n for n in vade_9k.SUBSETS if n not in ("geo3k",)]
    command += [f"--config.subsets.{name}.path=" for name in without]
    run = lambda *more: subprocess.run(
        [*command, *more], cwd=ROOT, capture_output=True, text=True
    )
    failed = run()
    assert failed.returncode == 2 and "has only 25 rows" in failed.stderr
    assert failed.stderr.count("\n") == 1
    made = run("--config.subsets.geo3k.take=9", "--config.own=('easy.parquet',)")
    assert made.returncode == 0, made.stderr
    assert "| all |" in made.stdout
    assert len(sources.rows(tmp_path / "out" / "train.arrow")) == 9
