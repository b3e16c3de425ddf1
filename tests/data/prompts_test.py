"""Prompts: tokens, M-RoPE positions, and what is rejected."""

import dataclasses
import functools
import types as python_types

import numpy as np
import pytest
import tokenizers
from PIL import Image

from vade_jax import types
from vade_jax.data import prompts, tokens
from vade_jax.models.qwen import tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tiny_tokenizer.build(tmp_path_factory.mktemp("tiny"), ["How many?", "a b c"], 400)


def _builder(tokenizer, instruction="", max_length=200):
    limits = {"min_pixels": 3136, "max_pixels": 200 * 784, "max_length": max_length}
    return prompts.PromptBuilder(tokenizer, instruction=instruction, **limits)


def _item(question="How many?", sizes=((112, 112),), answer="3", kind="int", uid="u"):
    pictures = tuple(Image.new("RGB", (width, height)) for height, width in sizes)
    return types.Item(uid=uid, question=question, images=pictures, answer=answer, kind=kind)


def test_a_prompt_is_the_template_with_one_pad_for_each_merged_cell(tokenizer):
    prompt = _builder(tokenizer, instruction="Box it.")(_item())
    assert prompt.text == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>How many?\n"
        "Box it.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (prompt.token_P == tokenizer.image_pad).sum() == 16
    assert prompt.length == len(tokenizer.encode(prompt.text)) + 15
    assert prompt.images[0].shape == (112, 112, 3)


def test_images_stand_at_their_marks(tokenizer):
    item = _item("<image>\nor <image>?", sizes=((56, 56), (56, 84)))
    prompt = _builder(tokenizer)(item)
    pad = "<|vision_start|><|image_pad|><|vision_end|>"
    assert f"user\n{pad}\nor {pad}?<|im_end|>" in prompt.text
    assert (prompt.token_P == tokenizer.image_pad).sum() == 4 + 6


def test_control_tokens_in_a_question_make_no_special_tokens(tokenizer):
    dirty = "How <|im<|im_end|>age_pad|>many<|vision_start|>?<|im_start|>"
    prompt = _builder(tokenizer)(_item(dirty))
    assert "<|vision_end|>How <|im age_pad|>many ?<|im_end|>" in prompt.text


def test_the_instruction_keeps_tags_that_are_tokens_and_a_question_does_not(tmp_path):
    tiny_tokenizer.build(tmp_path, ["How many?"], 400)
    file = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    file.add_tokens(["<think>", "</think>"])  # as Qwen3's has them
    file.save(str(tmp_path / "tokenizer.json"))
    build = _builder(tokens.Tokenizer.load(tmp_path), "Think in <think> </think>.")
    prompt = build(_item("<think>How many?"))
    assert "> How many?\nThink in <think> </think>.<|im_end|>" in prompt.text


@pytest.mark.parametrize("sizes", [(), ((112, 112),), ((56, 168), (28, 140), (84, 84))])
def test_positions_equal_the_published_ones(tokenizer, sizes):
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.qwen2_5_vl.modeling_qwen2_5_vl")
    prompt = _builder(tokenizer)(_item("a " + "<image> b" * len(sizes), sizes))
    model = modeling.Qwen2_5_VLModel
    vision = python_types.SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    stub = python_types.SimpleNamespace(
        config=python_types.SimpleNamespace(vision_config=vision),
        get_vision_position_ids=functools.partial(model.get_vision_position_ids, None),
    )
    grids = [(1, height // 14, width // 14) for height, width in sizes]
    token_P = torch.tensor(prompt.token_P)
    theirs, delta = model.get_rope_index(
        stub,
        token_P[None],
        (token_P == tokenizer.image_pad).int()[None],
        torch.tensor(grids) if grids else None,
    )
    np.testing.assert_array_equal(prompt.position_PX.T, theirs[:, 0].numpy())
    assert prompt.position_PX.max() + 1 - prompt.length == delta.item()


def test_positions_of_one_small_image_by_hand():
    # text, a 1 x 2 image, text: the image takes max(1, 2) positions
    position_PX = prompts.positions(np.array([1, 9, 9, 2]), [(1, 2)], image_pad=9)
    assert position_PX.tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 2], [3, 3, 3]]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (_item(" <|im_end|> "), "empty_question"), (_item("<image> a <image>"), "image_count"),
        (_item("<image><video> a"), "not_an_image"), (_item(sizes=((1, 300),)), "bad_image"), (_item("a " * 300), "too_long"),
    ],
)  # fmt: skip
def test_rejects_carry_their_reason(tokenizer, item, reason):
    with pytest.raises(prompts.RejectedItem, match=r"^u: ") as caught:
        _builder(tokenizer)(item)
    assert (caught.value.uid, caught.value.reason) == ("u", reason)


def test_audit_keeps_the_good_and_lists_the_rest(tokenizer):
    source = [
        _item(uid="good"),
        _item("", uid="empty"),
        _item(answer="three", uid="key"),
        _item(kind="formula", uid="kind"),
    ]
    kept, notes, rejects = prompts.audit(source, _builder(tokenizer))
    assert kept.tolist() == [0] and notes.shape == (1,)
    assert [r["reason"] for r in rejects] == ["empty_question", "bad_answer", "bad_answer"]
    assert [r["uid"] for r in rejects] == ["empty", "key", "kind"]
    assert "'three' is not a valid int" in rejects[1]["detail"]


def test_a_target_goes_on_after_the_tag_that_the_template_opens(tmp_path):
    def text(template_end, answer="7"):
        tiny_tokenizer.build(tmp_path, ["How many?"], 400)
        path = tmp_path / "chat_template.jinja"
        path.write_text(path.read_text() + template_end)
        tokenizer = tokens.Tokenizer.load(tmp_path)
        ids = _builder(tokenizer).target(answer, "think_boxed")
        assert ids.pop() == tokenizer.im_end
        return tokenizer.decode(ids)

    whole = "<think>\n\n</think>\n\n\\boxed{7}"
    assert text("") == whole
    assert text("{{- '<think>' -}}") == whole.removeprefix("<think>")
    assert text("{{- '<think>\\n' -}}") == whole.removeprefix("<think>\n")
    assert text("", "<|im_end|>7\ud800") == whole.replace("7", " 7?")  # no control tokens


def test_what_an_audit_notes_tells_rows_apart(tokenizer):
    """Id, question and answer; whatever else a verdict may hang on; words and pictures, whatever the id."""

    def notes(name, **changes):
        item = dataclasses.replace(_item(), **changes)
        return prompts.audit([item], _builder(tokenizer), has_rules=False)[1][name].item()

    (picture,) = _item(sizes=((56, 224),)).images
    texts = {"uid": "a"}, {"question": "How many cats?"}, {"answer": "4"}
    assert len({notes("checksum", **one) for one in ({}, *texts)}) == 4
    of_verdict = [{"kind": "float"}, *({"metadata": {"tolerance": x}} for x in (0.1, 0.2))]
    of_verdict += [{"columns": {"rubric": x}} for x in ("short", "long")]
    assert len({notes("details", **one) for one in ({}, *of_verdict)}) == 6
    same = notes("details", columns={"x": [1], "file": b"a"}), notes("details", uid="a")
    assert {*same} == {notes("details")}
    pictures = {"question": "How many cats?"}, {"images": (picture,)}, {"images": ()}
    assert len({notes("asked", **one) for one in ({}, *pictures)}) == 4
    assert notes("asked", uid="b", answer="4") == notes("asked")


def test_a_text_model_gets_texts_for_turns_and_no_images(tmp_path):
    text_model = tiny_tokenizer.build(tmp_path, ["How many?"], 400, shows_images=False)
    assert tokens.Tokenizer.load(tmp_path).why_no_images
    build = _builder(text_model, instruction="Box it.")
    prompt = build(_item(sizes=()))
    assert prompt.text == (
        "<|im_start|>user\nHow many?\nBox it.<|im_end|>\n<|im_start|>assistant\n"
    )
    np.testing.assert_array_equal(prompt.position_PX, np.arange(prompt.length)[:, None] + [0, 0, 0])
    with pytest.raises(
        ValueError,
        match=r"u has 1 images, and the checkpoint's chat template fails: TypeError.*of a text model",
    ):
        build(_item())


def test_images_of_a_chat_turn_are_at_their_marks_or_first():
    def parts(text, urls):
        content = prompts.message(text, urls)["content"]
        return [c["image_url"]["url"] if "image_url" in c else c["text"] for c in content]

    assert parts("a <image> b <image>", ["u", "v"]) == ["a ", "u", " b ", "v"]
    assert parts("a b", ["u", "v"]) == ["u", "v", "a b"]
    assert parts("say <image> twice", ["u", "v"]) == ["u", "v", "say <image> twice"]
    assert parts("a", []) == ["a"]
