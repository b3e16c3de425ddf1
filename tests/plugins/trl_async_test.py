"""The selector in TRL's AsyncGRPOTrainer and its process for rollouts; vLLM and the loss are made up."""

import http.server
import importlib.util
import json
import random
import threading
from unittest import mock

import pytest

from tests.plugins.trl_trainer_test import policy, rows

pytestmark = [
    pytest.mark.plugins,
    pytest.mark.skipif(not importlib.util.find_spec("trl"), reason="needs TRL"),
]
G, B = 4, 2  # answers to a row; rows of an optimizer step
IDS = [f"row-{i}" for i in range(50)]  # more than TRL has in flight and in its queues
REWARDS = """
import json

def right(completions, key, **kwargs):
    scores = [float(len(completion[0]["content"].split()) % 2) for completion in completions]
    with open("judged.jsonl", "a") as file:
        print(json.dumps([key[0], scores]), file=file)
    return scores

def form(completions, **kwargs):
    return [1.0] * len(completions)
"""


@pytest.fixture
def server():
    """Answers at random where TRL asks vLLM; `asked` has the prompt of every request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append(tuple(request["prompt"]))
            tokens = [random.randint(3, 60) for _ in range(random.randint(1, 6))]
            choice = {"token_ids": tokens, "logprobs": {"token_logprobs": [-1.0] * len(tokens)}}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [choice]}).encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def make(server):
    from trl.experimental import async_grpo

    from vade_jax.plugins import trl_async

    class Trainer(trl_async.SelectingAsyncGRPOTrainer):
        def compute_loss(self, model, inputs, **kwargs):  # TRL's needs a kernel for GPUs
            return 0 * sum(x.sum() for x in model.parameters())

    model, tokenizer = policy()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.response_schema = {"type": "object"}  # it calls no tools
    model.save_pretrained("model")
    args = async_grpo.AsyncGRPOConfig(
        output_dir=".",
        per_device_train_batch_size=B * G,
        num_generations=G,
        max_inflight_tasks=3 * G,
        queue_maxsize=G,
        max_steps=4,
        save_steps=2,
        token_budget=0,
        use_cpu=True,
        bf16=False,
        report_to="none",
        vllm_server_base_url=f"http://127.0.0.1:{server.server_port}",
    )
    rewards = importlib.import_module("rewards_of_a_test")
    return Trainer(
        "model",
        [rewards.form, rewards.right],
        args,
        rows(IDS).map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]}),
        tokenizer,
        weight_transfer=mock.Mock(send_weights=list),
        selector_options={"decay_selected": 1.0, "decay_rest": 1.0},  # it only counts
        id_column="key",
        correct="right",
    )


def test_rows_are_chosen_one_at_a_time_and_the_checkpoint_has_the_state(
    tmp_path, server, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # TRL's process has the same path
    (tmp_path / "rewards_of_a_test.py").write_text(REWARDS)
    place = "trl.experimental.async_grpo."
    monkeypatch.setattr(place + "async_rollout_worker.is_vllm_available", lambda: True)
    monkeypatch.setattr(place + "async_grpo_trainer.get_peak_flops_per_device", mock.Mock())
    trainer = make(server)
    trainer.train()
    # Each reward counts once: it is in the posterior, or waits for the other groups of a step.
    judged = [json.loads(line) for line in (tmp_path / "judged.jsonl").read_text().splitlines()]
    state = trainer.stream.state_dict()
    waiting = [(name, [is_right]) for name, is_right in state["answers"]]
    counts = [state["selector"]["state"][x] for x in ("alpha_I", "beta_I")]
    for sign, groups in ((1, waiting), (-1, judged)):
        for name, scores in groups:
            counts[0][IDS.index(name)] += sign * sum(scores)
            counts[1][IDS.index(name)] += sign * scores.count(0)
    assert counts == [[0] * 50] * 2 and len(judged) >= 4 * B
    assert trainer.state.log_history[0]["vade/in_flight"] > 0 == trainer.stream.metrics()["lost"]

    # TRL's process loses what is out: a resumed run asks for it first.
    saved = json.loads((tmp_path / "checkpoint-2" / "selector.json").read_text())
    server.asked.clear()
    again = make(server)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.state.global_step == 4
    out = [f"w{IDS.index(name)} w{IDS.index(name) + 1}" for name in saved["out"]]
    assert {again.processing_class.decode(x) for x in server.asked[:G]} <= set(out)
