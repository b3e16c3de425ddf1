"""The warm start: its data, its targets, and the checkpoint it leaves."""

import functools

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from experiments import assemble, make_tiny, supervise
from tests.trainer import small
from vade_jax.data import procedural, tokens
from vade_jax.models.qwen25vl import config, files
from vade_jax.trainer import mesh


@pytest.fixture(scope="module", autouse=True)
def tiny():
    one_device = mesh.make
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            jax, "jit", functools.partial(jax.jit, compiler_options=small.FAST)
        )
        patch.setitem(config.PRESETS, "tiny", small.SHAPE)
        patch.setattr(
            mesh, "make", lambda **a: one_device(**a, devices=jax.devices()[:1])
        )
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random tiny checkpoint."""
    directory = tmp_path_factory.mktemp("base") / "tiny_model"
    make_tiny.make(directory, seed=0)
    return directory


def smoke(**warm_start):
    c = tiny_gspo.get_config("smoke")
    c.warm_start.update(batch_size=4, **warm_start)
    return c


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


def test_targets_are_the_answers_with_an_end(base):
    tokenizer = tokens.Tokenizer.load(base)
    texts = [r"\boxed{7}", r"\boxed{red}", r"\boxed{12}"]
    found = supervise._targets(smoke(), tokenizer, texts)
    for n, text in enumerate(texts):
        ids = list(found.token_NT[n, : found.length_N[n]])
        assert ids.pop() == tokenizer.im_end
        assert tokenizer.decode(ids) == text
    np.testing.assert_array_equal(found.group_N, range(3))
    assert found.valid_N.all()


def test_an_answer_longer_than_an_answer_may_be_is_an_error(base):
    c = smoke()
    c.sampling.max_tokens = 2
    with pytest.raises(ValueError, match=r"max_tokens=2: .* have up to \d+ tokens"):
        supervise._check_answers_fit(c, tokens.Tokenizer.load(base))


def test_the_teacher_is_wrong_as_often_as_asked_and_within_the_family():
    """A stand-in is drawn from the family, so it is sometimes right by chance."""
    source = procedural.Procedural(0, 400, "warmup")
    items = [source[i] for i in range(400)]
    family = items[0].metadata["family"]
    inside = [item for item in items if item.metadata["family"] == family]
    known = {procedural.target_text(item) for item in inside}

    def right(noise):
        teacher = supervise.Teacher(source, {family: noise}, 3)
        truth = procedural.target_text(inside[0])
        return np.mean([teacher(inside[0], i) == truth for i in range(60)])

    assert right(0.0) == 1
    assert right(1.0) < 0.7 < right(0.1)
    always = supervise.Teacher(source, {family: 1.0}, 3)
    said = [always(item, i) for i, item in enumerate(items)]
    assert said == [always(item, i) for i, item in enumerate(items)]
    for item, text in zip(items, said, strict=True):
        if item.metadata["family"] == family:
            assert text in known
        else:
            assert text == procedural.target_text(item)


def test_batches_are_new_every_step_and_the_same_every_run(base):
    c = smoke(num_steps=3)
    policy = assemble.policy(c, base)
    first = list(supervise._batches(c, policy))
    assert [b.mask_NT.shape[:2] for b in first] == [(1, 4)] * 3
    again = list(supervise._batches(c, policy))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    prompts = {b.prompts.images.patch_BWSE.tobytes() for b in first}
    assert len(prompts) == 3


def test_it_learns_and_leaves_a_whole_checkpoint(base, tmp_path, capsys):
    """Likelihood of answers it has seen falls; the file lists are those of the base."""
    c = smoke(num_steps=6, learning_rate=3e-3)
    c.model.preset, c.model.checkpoint = "", str(base)
    out = tmp_path / "warm_start"
    assert supervise.base_checkpoint(c, str(tmp_path)) == str(out)
    assert {p.name for p in out.iterdir()} == {p.name for p in base.iterdir()}
    bar = capsys.readouterr().err
    losses = [float(text.split("]")[0]) for text in bar.split("loss=")[1:]]
    assert losses[-1] < losses[0] - 0.5
    stamp = (out / "model.safetensors").stat().st_mtime_ns
    supervise.base_checkpoint(c, str(tmp_path))  # is there: nothing is trained
    assert (out / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_half_made_checkpoint_is_made_again(tmp_path):
    c = smoke(num_steps=0)
    (tmp_path / "tiny_model").mkdir()
    (tmp_path / "tiny_model" / "tokenizer.json").write_text("{")
    directory = supervise.base_checkpoint(c, str(tmp_path))
    files.load(directory)
    tokens.Tokenizer.load(directory)
