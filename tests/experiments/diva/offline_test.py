"""A user's file, a scripted server, and the file that comes out: read again as training does."""

import json
import pathlib
import re

from experiments.diva import offline
from experiments.evals.chat import Chat
from experiments.evals.settings import Server
from tests.http_server import ScriptedChat, said
from vade_jax.data import sources


def teacher(body):
    """Knows every answer, but not of questions with WRONG; its third wording has it, its last is cut."""
    text = said(body)
    number = re.search(r"the number (\d+)", text)[1]
    if "<wording>" in text:
        ways = ("Which follows", "Name what follows", "WRONG: what follows")
        made = [f"<wording>{way} the number {number}?</wording>" for way in ways]
        return "Sure.\n" + "\n".join(made) + "\n<wording>And"
    answer = -1 if "WRONG" in text else int(number) + 1
    if "<step>" in text:
        hints = ("Step 1: Count on by one.", f"That gives {answer}.", "Done.")
        listed = "".join(f"<step>{hint}</step>" for hint in hints)
        return rf"{listed} \boxed{{{answer}}}"
    return rf"Counting on gives \boxed{{{answer}}}"


def question(n, **more):
    return {"question": f"What comes after the number {n}?", "answer": n + 1, **more}


def write(path, *rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def test_what_is_right_is_kept_and_the_rest_is_listed(tmp_path):
    source = write(tmp_path / "a" / "mine.jsonl", question(3, topic="x"), question(8))
    target = str(tmp_path / "out.jsonl")
    memory = offline.replies_directory(target) / "replies.jsonl"
    memory.parent.mkdir()  # as the command does, which locks it
    with ScriptedChat(teacher) as server:
        chat = Chat(Server(url=server.url, model="m", concurrency=4, retries=1), memory)
        wanted = offline.Wanted(paraphrases=4, steps=3)
        report = offline.write(sources.rows(source), target, chat, wanted)
    counts = chat.counts()
    rows = sources.rows(tmp_path / "out.jsonl")
    assert len(rows) == report.num_rows == 2
    for item, n in zip((rows[0], rows[1]), (3, 8), strict=True):
        assert item.metadata["paraphrases"] == [
            f"Which follows the number {n}?",
            f"Name what follows the number {n}?",
        ]
        assert item.metadata["steps"] == ["Count on by one."]
        assert (item.answer, item.kind) == (str(n + 1), "int")
    assert (rows[0].uid, rows.row(0)["topic"]) == ("mine:0", "x")
    assert report.kept == {"paraphrases": 4, "steps": 2}
    per_row = {("paraphrases", "not_confirmed"): 2, ("paraphrases", "unreadable"): 2}
    assert report.rejected == per_row
    rejects = read(tmp_path / "out_replies" / "rejects.jsonl")
    assert [(r["index"], r["uid"], r["reason"]) for r in rejects] == [
        (i, f"mine:{i}", reason) for i in (0, 1) for reason in ("unreadable", "not_confirmed")
    ]
    assert rejects[1]["detail"] == "WRONG: what follows the number 3?"
    # A row asks for wordings, hints, and twice of three times for each of three wordings.
    assert counts == dict(asked=16, remembered=0, unanswered=0)
    summary = report.table(counts)
    assert "paraphrases         4 kept   rejected: not_confirmed 2, unreadable 2" in summary
    assert "questions    16 asked, 0 remembered" in summary
