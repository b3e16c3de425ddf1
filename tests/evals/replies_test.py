"""Replies survive the process, a line that was cut off, and many threads."""

import json
import threading

from vade_jax.evals import replies


def request(text="q", **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def test_the_key_is_of_the_content():
    assert replies.key({"a": 1, "b": 2}) == replies.key({"b": 2, "a": 1})
    others = [request("p"), request(seed=0), request(seed=1), {"model": "n"}]
    assert len({replies.key(r) for r in [request(), *others]}) == 5


def test_what_was_put_is_there_for_the_next_process(tmp_path):
    first = replies.Replies(tmp_path / "new" / "replies.jsonl")
    for n in range(3):
        first.put(f"k{n}", request(f"é{n}"), {"n": n})
    assert first.get("k1") == {"n": 1} and first.get("k9") is None
    second = replies.Replies(tmp_path / "new" / "replies.jsonl")  # none was closed
    assert [second.get(f"k{n}") for n in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert (len(second), second.damaged) == (3, 0)


def test_a_line_that_was_cut_off_costs_one_reply(tmp_path):
    path = tmp_path / "replies.jsonl"
    memory = replies.Replies(path)
    memory.put("a", request(), 1)
    memory.put("b", request(), 2)
    memory.close()
    path.write_bytes(path.read_bytes()[:-5])
    memory = replies.Replies(path)
    assert (memory.get("a"), memory.get("b"), memory.damaged) == (1, None, 1)
    memory.put("b", request(), 3)
    memory = replies.Replies(path)
    assert (memory.get("a"), memory.get("b"), memory.damaged) == (1, 3, 1)


def test_images_are_kept_as_their_hash(tmp_path):
    path = tmp_path / "replies.jsonl"
    url = "data:image/png;base64," + "A" * 1000
    part = {"type": "image_url", "image_url": {"url": url}}
    replies.Replies(path).put("a", {"messages": [{"content": [part]}]}, "raw reply")
    row = json.loads(path.read_text())
    kept = row["request"]["messages"][0]["content"][0]["image_url"]["url"]
    assert kept.startswith("data:image/png;base64,sha256=") and len(kept) < 100
    assert row["reply"] == "raw reply"


def test_threads_share_it(tmp_path):
    memory = replies.Replies(tmp_path / "replies.jsonl")

    def fill(i):
        for n in range(50):
            memory.put(f"{i}-{n}", request(), "x" * (i * n))
            assert memory.get(f"{i}-{n}") == "x" * (i * n)

    threads = [threading.Thread(target=fill, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = replies.Replies(tmp_path / "replies.jsonl")
    assert (len(again), again.damaged, again.get("7-9")) == (400, 0, "x" * 63)
