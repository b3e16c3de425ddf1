"""The selector in TRL's own GRPOTrainer: a tiny random Llama trains on the rows VADE chooses."""

import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from vade_jax.selector import Selector

pytestmark = [
    pytest.mark.plugins,
    pytest.mark.skipif(not importlib.util.find_spec("trl"), reason="needs TRL"),
]
G, NUM_ROWS, SEED = 4, 12, 3
IDS = [f"row-{7 * i % NUM_ROWS}" for i in range(NUM_ROWS)]
HERE = pathlib.Path(__file__)


def load():
    from vade_jax.plugins import trl_trainer

    return trl_trainer


def rows(ids=IDS):
    import datasets

    return datasets.Dataset.from_dict(
        {"prompt": [f"w{i} w{i + 1}" for i in range(len(ids))], "key": ids}
    )


def policy():
    """A tiny random Llama and its tokenizer of words w0 ... w59."""
    import tokenizers
    import torch
    import transformers

    torch.set_num_threads(1)  # more of them only wait for each other at this size
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i + 3 for i in range(60)}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    shape = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return transformers.LlamaForCausalLM(shape), tokenizer


class Right:
    """The reward function: keeps what it saw, as one (ids, scores) a call."""

    __name__ = "right"

    def __init__(self):
        self.seen = []

    def __call__(self, completions, key, **kwargs):
        scores = [float(len(set(text)) % 2) for text in completions]
        self.seen.append((list(key), scores))
        return scores


def form(completions, **kwargs):
    return [1.0] * len(completions)


def assert_same_state(first, second):
    first, second = first.state_dict()["state"], second.state_dict()["state"]
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)


def config(folder, **changes):
    import trl

    given = dict(
        per_device_train_batch_size=12,
        per_device_eval_batch_size=12,
        num_generations=G,
        max_completion_length=4,
        learning_rate=1e-2,
        max_steps=4,
        seed=SEED,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    )
    return trl.GRPOConfig(output_dir=str(folder), **(given | changes))


def make(folder, reward_funcs=None, data=None, args=None, **options):
    model, tokenizer = policy()
    return load().SelectingGRPOTrainer(
        model,
        reward_funcs or Right(),
        config(folder, **(args or {})),
        rows() if data is None else data,
        processing_class=tokenizer,
        **({"id_column": "key"} | options),
    )


def groups(seen):
    """Yields the ids and the right answers of each call, and checks that groups are whole."""
    for key, scores in seen:
        ids = key[::G]
        assert key == [name for name in ids for _ in range(G)]
        yield ids, np.reshape(scores, (-1, G)).sum(1)


@pytest.mark.parametrize(
    ("args", "num_prompts", "generations"),
    [
        ({}, 3, 4),
        ({"num_iterations": 2}, 3, 2),
        ({"gradient_accumulation_steps": 2}, 6, 4),
        # two generations an optimizer step: the loader has read both before the first
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, 3, 8),
        ({"dataloader_num_workers": 1}, 3, 4),
        ({"remove_unused_columns": False, "shuffle_dataset": False}, 3, 4),
    ],
)
def test_chooses_what_the_selector_chooses(tmp_path, args, num_prompts, generations):
    trainer = make(tmp_path, args=args)
    trainer.train()
    seen = trainer.reward_funcs[0].seen
    assert len(seen) == generations
    selector = Selector(IDS, seed=SEED, num_rollouts=G)
    for ids, right_M in groups(seen):
        assert ids == selector.select(num_prompts)
        selector.observe(ids, right_M, G)
    assert 0 < np.mean([scores for _, scores in seen]) < 1
    assert_same_state(trainer.selector, selector)
    assert trainer.state.log_history[0]["vade/unscored_ratio"] == 0


def test_evaluation_is_left_alone(tmp_path):
    import trl

    ours, theirs = Right(), Right()
    trainer = make(tmp_path, ours, eval_dataset=rows())
    trainer.evaluate()
    assert_same_state(trainer.selector, Selector(IDS, seed=SEED, num_rollouts=G))
    model, tokenizer = policy()
    trl.GRPOTrainer(
        model, theirs, config(tmp_path), rows(), rows(), processing_class=tokenizer
    ).evaluate()
    assert ours.seen == theirs.seen


def test_a_function_may_judge_and_none_is_no_verdict(tmp_path):
    def partly(completions, **kwargs):
        return [None if i % 4 == 0 else 0.9 for i in range(len(completions))]

    shapes = []

    def judge(reward_NF):
        shapes.append(reward_NF.shape)
        return np.where(np.isnan(reward_NF[:, 0]), np.nan, 1)

    args = {"max_steps": 1}
    for options in ({}, {"correct": judge}):
        trainer = make(tmp_path, partly, args=args, **options)
        trainer.train()
        state = trainer.selector.state_dict()["state"]
        assert (sum(state["alpha_I"]), sum(state["beta_I"])) == (9, 0)
        assert trainer.state.log_history[0]["vade/unscored_ratio"] == 0.25
    assert shapes == [(12, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": ["a"] * 12}, "items: 12 ids, 1 of them"),
        ({"selector": "knapsack"}, "knapsack"),
        ({"reward_funcs": [form, Right()]}, r"correct=None.*\['form', 'right'\]"),
    ],
)
def test_mistakes_are_named_before_training(tmp_path, options, message):
    if "data" in options:
        options = options | {"data": rows(options["data"])}
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **options)


def test_a_trainer_without_the_hooks_is_refused_when_the_class_is_made():
    import trl

    class Old:
        _calculate_rewards = trl.GRPOTrainer._calculate_rewards

    with pytest.raises(TypeError, match=r"trl 1\.\d+\.\d+ has no get_train_dataloader"):
        type("Mine", (load().Selecting, Old), {})


def test_a_resumed_run_goes_on_as_the_whole_one(tmp_path):
    args = {"save_strategy": "steps", "save_steps": 2}
    whole, again = (make(tmp_path, args=args) for _ in range(2))
    whole.train()
    saved = tmp_path / "checkpoint-2"
    again.train(resume_from_checkpoint=str(saved))
    assert len(whole.reward_funcs[0].seen) == 4
    assert again.reward_funcs[0].seen == whole.reward_funcs[0].seen[2:]
    (saved / "selector.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"selector\.json"):
        make(tmp_path, args=args).train(resume_from_checkpoint=str(saved))


def test_two_processes_roll_out_the_same_choice(tmp_path):
    """Three groups of four on two processes: the second group lies on both."""
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29613"]
    command = [sys.executable, *launch, str(HERE), str(tmp_path)]
    subprocess.run(command, check=True, cwd=HERE.parents[2], timeout=600)
    parts = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2)]
    selector = Selector(IDS, seed=SEED, num_rollouts=G)
    for (key_0, score_0), (key_1, score_1) in zip(*parts, strict=True):
        ((ids, right_M),) = groups([(key_0 + key_1, score_0 + score_1)])
        assert ids == selector.select(3)
        selector.observe(ids, right_M, G)


if __name__ == "__main__":  # one of two processes
    output = pathlib.Path(sys.argv[1])
    process = make(output, args={"per_device_train_batch_size": 6, "max_steps": 3})
    process.train()
    name = f"{process.accelerator.process_index}.json"
    (output / name).write_text(json.dumps(process.reward_funcs[0].seen))
