"""The warm start: its data, its targets, and the checkpoint it leaves."""

import dataclasses
import json
import os
import pathlib

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from tests.trainer import small
from vade_jax import run, settings
from vade_jax.data import tokens
from vade_jax.models.qwen import files, presets
from vade_jax.run import UserError, build, checks, directory, warm_start
from vade_jax.store import metrics
from vade_jax.trainer import scoring

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def base(small_checkpoint):
    return small_checkpoint


def smoke(max_tokens=8, **warm_start):
    c = tiny_gspo.get_config("smoke")
    c.warm_start.update(batch_size=4, **warm_start)
    c.sampling.max_tokens = max_tokens
    return settings.Run.from_dict(c.to_dict())


def test_the_tiny_checkpoint_has_all_that_a_published_one_has(base):
    assert {p.name for p in base.iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "preprocessor_config.json",
        "generation_config.json",
    }
    shape, _ = files.load(base)
    assert shape.image_token_id == tokens.Tokenizer.load(base).image_pad
    assert not base.with_name("tiny_model.tmp").exists()


def test_a_warm_start_that_another_run_makes_now_is_left_to_it(base, tmp_path):
    run = smoke(directory=str(tmp_path / "shared"))
    with (
        directory.own(str(tmp_path / "shared.partial")),
        pytest.raises(UserError, match=r"warm_start.directory=.*shared.partial is another run's"),
    ):
        warm_start.warm_started(run, str(base), str(tmp_path), lambda: False)


def test_targets_are_the_answers_with_an_end(base):
    tokenizer = tokens.Tokenizer.load(base)
    texts = [r"\boxed{7}", r"\boxed{red}", r"\boxed{12}"]
    ids_of = [[*tokenizer.encode(text), tokenizer.im_end] for text in texts]
    found = warm_start._targets(ids_of, tokenizer, 8)
    for n, text in enumerate(texts):
        ids = list(found.token_NT[n, : found.length_N[n]])
        assert ids.pop() == tokenizer.im_end
        assert tokenizer.decode(ids) == text
    np.testing.assert_array_equal(found.group_N, range(3))
    assert found.valid_N.all()


def check_answers_fit(run, base):
    tokenizer, mixture = tokens.Tokenizer.load(base), warm_start.mixture(run)
    checks.data.check_answers_fit(mixture, run.seed, run.sampling.max_tokens, tokenizer)


def test_an_answer_longer_than_an_answer_may_be_is_an_error(base):
    run = smoke(max_tokens=2)
    with pytest.raises(ValueError, match=r"max_tokens=2: .* have up to \d+ tokens"):
        check_answers_fit(run, base)


def test_the_longest_answer_may_be_a_rare_one(base):
    run = smoke(max_tokens=5, mixture={"color_0": 1.0, "hidden_0": 1e-6})
    with pytest.raises(ValueError, match=r"max_tokens=5: .* have up to 7 tokens"):
        check_answers_fit(run, base)


def test_batches_are_new_every_step_and_the_same_every_run(base):
    c = smoke(num_steps=3)
    policy = build.load_policy(c, base)
    first = list(warm_start._batches(c, policy, 0))
    assert [b.mask_NT.shape[:2] for b in first] == [(1, 4)] * 3
    again = list(warm_start._batches(c, policy, 1))  # as a resumed run takes them
    jax.tree.map(np.testing.assert_array_equal, first[1:], again)
    prompts = {b.prompts.images.patch_BWSE.tobytes() for b in first}
    assert len(prompts) == 3


def warm_started(c, base, workdir, stop=lambda: False):
    made = warm_start.warm_started(c, str(base), str(workdir), stop)
    return made and pathlib.Path(made)


def test_it_learns_and_leaves_a_whole_checkpoint(base, tmp_path, capsys):
    """Likelihood of answers it has seen falls; the file lists are those of the base."""
    c = smoke(num_steps=6, learning_rate=3e-3)
    out = warm_started(c, base, tmp_path)
    assert out == tmp_path / "warm_start"
    assert {p.name for p in out.iterdir()} == {p.name for p in base.iterdir()}
    assert not (tmp_path / "warm_start.partial").exists()
    bar = capsys.readouterr().err
    assert float(bar.rsplit("loss=", 1)[1].split("]")[0]) < 6.0  # log 512 is 6.2
    stamp = (out / "model.safetensors").stat().st_mtime_ns
    (tmp_path / "warm_start.partial").mkdir()  # a kill came before it was removed
    warm_started(c, base, tmp_path)  # is there: nothing is trained
    assert not (tmp_path / "warm_start.partial").exists()
    assert (out / "model.safetensors").stat().st_mtime_ns == stamp


def test_one_made_with_other_values_is_not_taken(base, tmp_path):
    (tmp_path / "warm_start.json").write_text(json.dumps(warm_start.recipe(smoke(num_steps=6))))
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": 1}))
    with pytest.raises(UserError, match=r"warm_start.num_steps: 6 there, 7 now"):
        warm_started(smoke(num_steps=7), base, tmp_path)


def test_one_of_a_run_without_a_step_is_made_again_by_another_recipe(tmp_path, capsys):
    directory.claim(tmp_path / "warm_start.json", {"seed": 0})
    for name in ("warm_start", "warm_start.partial"):
        (tmp_path / name).mkdir()
    warm_start._drop_another(str(tmp_path / "warm_start"), {"seed": 0})
    assert len(list(tmp_path.iterdir())) == 3 and capsys.readouterr().out == ""
    warm_start._drop_another(str(tmp_path / "warm_start"), {"seed": 1})
    assert "other settings (seed: 0 there, 1 now), so it is made again" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_slash_behind_the_directory_changes_nothing(base, tmp_path):
    other = json.dumps(warm_start.recipe(smoke(num_steps=6)))
    (tmp_path / "shared.json").write_text(other)
    run = smoke(num_steps=7, directory=f"{tmp_path / 'shared'}/")
    with pytest.raises(UserError, match=r"warm_start.num_steps: 6 there, 7 now"):
        warm_started(run, base, tmp_path)
    assert not (tmp_path / "shared").exists()


def test_files_of_somebody_else_are_not_replaced_by_one(base, tmp_path):
    mine = tmp_path / "mine" / "model.safetensors"
    mine.parent.mkdir()
    mine.touch()
    with pytest.raises(
        UserError, match=r"mine has files and is no warm start, which would replace"
    ):
        warm_started(smoke(num_steps=6, directory=str(mine.parent)), base, tmp_path)
    assert mine.exists()


def test_one_that_does_not_say_how_it_was_made_is_not_taken(base, tmp_path):
    run = smoke(num_steps=6, directory=str(base))
    with pytest.raises(UserError, match=rf"{base} lacks {base}.json, .* copy that, too"):
        warm_started(run, base, tmp_path)
    assert not base.with_name(f"{base.name}.json").exists()


def test_one_made_with_another_chat_template_is_not_taken(base, tmp_path):
    plain = smoke(num_steps=6)
    template = dataclasses.replace(plain.data, template={"enable_thinking": False})
    (tmp_path / "warm_start.json").write_text(json.dumps(warm_start.recipe(plain)))
    (tmp_path / "metrics.jsonl").write_bytes(metrics.line({"step": 1}))
    with pytest.raises(UserError, match=r"data.template.enable_thinking: None there, False now"):
        warm_started(dataclasses.replace(plain, data=template), base, tmp_path)


def test_a_stopped_warm_start_goes_on_where_it_was(base, tmp_path, capsys):
    c = smoke(num_steps=4)
    whole = warm_started(c, base, tmp_path / "whole")
    asked = iter([False, True])
    assert warm_started(c, base, tmp_path / "cut", lambda: next(asked)) is None
    assert "stopped after step 2" in capsys.readouterr().out
    resumed = warm_started(c, base, tmp_path / "cut")
    one, other = ((d / "model.safetensors").read_bytes() for d in (whole, resumed))
    assert one == other


def test_a_loss_that_is_not_a_number_names_its_step():
    fine, bad = {"actor/loss": np.float32(1.0)}, {"actor/loss": np.float32(np.nan)}
    with pytest.raises(scoring.NotFinite, match=r"warm start, step 42: .*actor/loss"):
        warm_start._read([(41, fine), (42, bad), (43, bad)])


def test_a_half_made_checkpoint_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    (tmp_path / "tiny_model").mkdir()
    (tmp_path / "tiny_model" / "tokenizer.json").write_text("{")
    save, left = files.save, []
    monkeypatch.setattr(files, "save", lambda *a: (left.extend(os.listdir(tmp_path)), save(*a)))
    directory = warm_start.untrained(smoke(), str(tmp_path))
    assert sorted(left) == [
        "tiny_model",
        "tiny_model.json",
    ]  # nothing but this completes it, whenever a kill comes
    files.load(directory)
    tokens.Tokenizer.load(directory)


def test_arrays_that_the_selector_cannot_do_with_are_found_before_the_warm_start(tmp_path):
    c = tiny_gspo.get_config("smoke,selector=bots")
    c.selector.arrays = {"weak_rate": "level"}
    with pytest.raises(UserError, match="bots needs the strong_rate of every item"):
        run.train(settings.Run.from_dict(c.to_dict()), str(tmp_path / "run"))
    assert not list((tmp_path / "run").glob("warm_start*"))


# ------------------------------------------------------------------------------ a user's rows
@pytest.fixture
def load(base, tmp_path):
    """Returns a function from settings to a run on eight rows, and its data."""
    rows = [{"id": f"r{i}", "question": f"Which is {i}?", "answer": str(i)} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def load(**sections):
        c = tiny_gspo.get_config("smoke")
        c.data.train, c.data.validation = str(tmp_path / "rows.jsonl"), ""
        c.data.validation_share = 0.25
        c.warm_start.batch_size = 4
        c.model.preset, c.model.checkpoint = "", str(base)
        for name, values in sections.items():
            c[name].update(values)
        run = settings.Run.from_dict(c.to_dict())
        return run, build.load_data(run, str(base), str(tmp_path))

    return load


def test_each_pass_has_every_row_once_and_none_that_is_held_out(load):
    run, data = load(reward={"format": "think_boxed"}, sampling={"max_tokens": 32})
    lesson = warm_start._of_rows(run, data.train, data.build_prompt)
    taught = [[lesson(6 * epoch + i) for i in range(6)] for epoch in range(2)]
    first, second = ([item.uid for item, _ in one] for one in taught)
    assert first != second and sorted(first) == sorted(second) == [x.uid for x in data.train]
    assert len(data.validation) == 2 and not {x.uid for x in data.validation} & {*first}
    tokenizer = data.build_prompt.tokenizer
    for item, ids in taught[0]:
        assert ids.pop() == tokenizer.im_end
        assert tokenizer.decode(ids) == f"<think>\n\n</think>\n\n\\boxed{{{item.answer}}}"


def test_a_step_has_as_many_rows_in_memory_as_in_rl(load, base):
    run, data = load(warm_start={"batch_size": 4, "num_steps": 3})
    batches = warm_start._batches(run, build.load_policy(run, base), 0, data.train)
    longest = data.train.lengths.max()
    assert [b.mask_NT.shape for b in batches] == [(2, 2, longest)] * 3
    assert run.batch.prompts_per_microbatch == 2 < run.sampling.max_tokens - longest


def test_what_rl_trains_is_what_rows_are_taught_to_also_after_a_stop(load, base, tmp_path, capsys):
    run, data = load(
        warm_start={"num_steps": 4, "learning_rate": 0.02}, lora={"rank": 4, "targets": "proj$"}
    )
    whole = warm_start.warm_started(run, str(base), str(tmp_path / "a"), lambda: False, data.train)
    asked = iter([False, True])
    cut = lambda stop: warm_start.warm_started(
        run, str(base), str(tmp_path / "b"), stop, data.train
    )
    assert cut(lambda: next(asked)) is None
    resumed = cut(lambda: False)
    assert whole and resumed
    one, other = (pathlib.Path(d, "model.safetensors").read_bytes() for d in (whole, resumed))
    assert one == other
    (_, before), (_, after) = files.load(base), files.load(whole)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, after)
    assert moved["text"]["layers"]["mlp"]["up"]["kernel"] > 1e-4
    assert moved["vision"]["blocks"]["qkv"]["kernel"] == moved["embedding"] == 0


def test_frozen_weights_are_not_taught(load, base, tmp_path):
    run, data = load(warm_start={"num_steps": 2}, optimizer={"frozen": ("embedding",)})
    made = warm_start.warm_started(run, str(base), str(tmp_path), lambda: False, data.train)
    (_, before), (_, after) = files.load(base), files.load(made)
    np.testing.assert_array_equal(before["embedding"], after["embedding"])
    assert np.abs(before["text"]["norm"]["scale"] - after["text"]["norm"]["scale"]).max() > 0


def test_other_rows_another_form_or_another_adapter_are_another_warm_start(load):
    run, data = load(warm_start={"num_steps": 2})
    recipe = lambda run, rows=data.train: json.dumps(warm_start.recipe(run, rows))
    others = [load(**x)[0] for x in ({"lora": {"rank": 4}}, {"reward": {"format": "think_boxed"}})]
    others = [dataclasses.replace(other, warm_start=run.warm_start) for other in others]
    fewer = recipe(run, data.train.where(slice(5)))
    assert len({recipe(run), fewer, *map(recipe, others)}) == 4
    assert recipe(run) == recipe(load(warm_start={"num_steps": 2})[0])


def test_the_policy_that_reads_is_kept_for_rows_and_begins_anew_for_built_in_questions(
    load, tmp_path, monkeypatch
):
    begun = []
    monkeypatch.setattr(
        warm_start.tiny_checkpoint, "write", lambda _, seed, preset: begun.append(preset)
    )
    monkeypatch.setattr(warm_start.cluster, "wait_until_shared", lambda _: None)
    model = {"preset": "tiny_reader", "checkpoint": ""}
    for name, data in (("a", "train"), ("b", "procedural")):
        run = load(warm_start={"num_steps": 2, "data": data}, model=model)[0]
        warm_start.untrained(run, str(tmp_path / name))
    assert begun == ["tiny_reader", "tiny"]


def test_a_run_teaches_its_training_rows(load, tmp_path, monkeypatch):
    job, data = load(warm_start={"num_steps": 1})
    taught = []
    monkeypatch.setattr(warm_start, "train", lambda *all, **_: taught.append(all[-1]))
    assert not run.train(job, str(tmp_path / "run"))  # as if it was stopped before it was ready
    assert [x.uid for x in taught[0]] == [x.uid for x in data.train]
