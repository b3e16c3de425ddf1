"""Results of answers, and through their file."""

import json

from experiments.evals import results, tasks
from experiments.evals.answers import Answer
from experiments.evals.settings import Evaluation, Sampling
from tests.experiments.evals.benchmarks import files


def test_answers_become_a_result_and_a_line_each(tmp_path):
    rows = [files.mathverse(str(i), problem_index="7") for i in range(2)]
    path = files.save(tmp_path / "verse.parquet", *rows)
    sampling = Sampling(num_samples=2)
    (task,) = tasks.read(Evaluation(benchmarks={"mathverse": path}, sampling=sampling))
    texts = ["The answer is B", "The answer is A", "What a long text it is,\nis it not?"]
    answers = [
        Answer("mathverse:0", 0, texts[0], 9, True),
        Answer("mathverse:0", 1, texts[1], 9, False),
        Answer("mathverse:1", 0, texts[2]),
    ]
    found = results.score(
        task, {(a.uid, a.sample): a for a in answers}, None, str(tmp_path), "mine", {"a": 1}
    )
    assert found.uids == ("mathverse:0", "mathverse:1")
    assert found.correct_MG.tolist() == [[True, False], [False, False]]
    assert found.extracted == [["B", "A"], [None, None]]
    assert (found.clusters, found.settings) == (["7", "7"], {"a": 1})
    assert found.groups[0]["subfield"] == ("Plane Geometry, Angle",)
    assert {k: n for k, n in found.counts.items() if n} == {
        "undecided": 1,
        "missing": 1,
        "cut_off": 1,
    }
    lines = (tmp_path / results.ITEMS).read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    assert [row["text"] for row in kept] == [*texts, None]
    assert [row["outcome"] for row in kept] == ["rules", "rules", "undecided", "missing"]
    assert results.load_all(tmp_path.parent)["mathverse"].counts == found.counts
