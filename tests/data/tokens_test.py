"""The tiny tokenizer in the published form, and the template's places."""

import json
import shutil

import pytest
import tokenizers

from vade_jax.data import tokens
from vade_jax.models.qwen import tiny_tokenizer

TEXTS = ["How many red circles are there?", "\\boxed{7}", "\\boxed{yes}"] * 20
SAMPLES = [
    "How many red circles are there? \\boxed{12}",
    "  spaces\t\r\n\n it's 2024, 日本 e\u0301 🙂",
    "<|im_start|>user\nhi<|im_end|>\n<tool_call>x</tool_call><|image_pad|>",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny_tokenizer.build(path, TEXTS, 400)
    return path


def test_transformers_loads_it_and_gives_the_same_ids_and_prompts(directory):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    ours = tokens.Tokenizer.load(directory)
    assert len(theirs) == len(ours) <= 400 - tiny_tokenizer.SPARE_ROWS
    assert theirs.eos_token_id == ours.im_end and theirs.pad_token_id == ours.pad
    kinds = ("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")
    banned = theirs.convert_tokens_to_ids([f"<|{kind}|>" for kind in kinds])
    assert ours.banned_ids == tuple(banned) and ours.image_pad == banned[3]
    for text in SAMPLES:
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    content = [{"type": "image"}, {"type": "text", "text": "hi"}]
    messages = [{"role": "user", "content": content}]
    assert ours.render(messages) == theirs.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    config = transformers.GenerationConfig.from_pretrained(directory)
    assert tuple(config.eos_token_id) == ours.stop_ids


END = "{{- '<|im_end|>\\n' -}}"  # of a turn in the tiny template
TEMPLATES = {  # what published templates use, put into the tiny one
    "generation": lambda text: text.replace(
        END,
        "{%- if message.role == 'user' -%}{% generation %}"
        + END
        + "{% endgeneration %}{%- endif -%}",
    ),
    "eos_token": lambda text: text.replace("'<|im_end|>\\n'", "eos_token + '\\n'"),
    "all tokens": lambda text: (
        text + "{{ bos_token }}/{{ eos_token }}/{{ pad_token }}/{{ unk_token }}/"
        "{{ sep_token }}/{{ cls_token is defined }}/{{ additional_special_tokens }}"
    ),
    "tojson": lambda text: (
        text + "{{ messages | tojson }}{{ {'b': '<é>', 'a': 1} | tojson(indent=2) }}"
        "{{ [1, 2] | tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 1} | tojson(sort_keys=true) }}"
    ),
    "loop controls": lambda text: (
        text + "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    ),
    "what is defined": lambda text: (
        text + "{{ tools is defined }}{{ documents is none }}"
        "{{ enable_thinking is defined }}{{ add_generation_prompt }}"
    ),
    "blocks": lambda text: "  {% if true %}\n  x\n  {% endif %}\n" + text,
}
TURNS = {
    "text": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi <é>"}],
    "image": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "hi"}]}],
}


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("change", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_renders_as_transformers_renders_it(directory, tmp_path, change, turns):
    transformers = pytest.importorskip("transformers")
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    plain = (directory / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.jinja").write_text(change(plain))
    assert change(plain) != plain
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = tokens.Tokenizer.load(tmp_path)
    assert not ours.why_no_images
    assert ours.render(turns) == theirs.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True
    )
    given = {"enable_thinking": False, "eos_token": "<end>"}
    assert ours.render(turns, **given) == theirs.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, **given
    )


def test_a_template_that_asks_for_today_gives_the_same_prompt_every_day(directory, tmp_path):
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "chat_template.jinja"
    plain = tokens.Tokenizer.load(directory).render(TURNS["text"])
    path.write_text("Today: {{ strftime_now('%d %b %Y') }}.|" + path.read_text())
    assert tokens.Tokenizer.load(tmp_path).render(TURNS["text"]) == "Today: 26 Jul 2024.|" + plain


def test_the_template_is_found_where_older_checkpoints_keep_it(directory, tmp_path):
    text = (directory / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="bad chat template: there is none"):
        tokens.Tokenizer.load(tmp_path)
    named = [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}]
    config = {"chat_template": named}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert tokens.Tokenizer.load(tmp_path).render([]) == "D"
    (tmp_path / "chat_template.json").write_text('{"chat_template": "J"}')
    assert tokens.Tokenizer.load(tmp_path).render([]) == "J"


def test_what_a_training_tool_left_in_the_file_cuts_and_pads_no_prompt(directory, tmp_path):
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=24)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.json").write_text('{"chat_template": "T"}')
    loaded, plain = (tokens.Tokenizer.load(path) for path in (tmp_path, directory))
    for text in ("hi", TEXTS[0]):
        assert loaded.encode(text) == plain.encode(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", "{"), ("generation_config.json", '{"eos_token_id": ["x"]}'), ("chat_template.jinja", "{% for x %}"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_clear_error(tmp_path, name, text):
    tiny_tokenizer.build(tmp_path, TEXTS, 400)
    (tmp_path / name).write_text(text)
    named = "bad chat template" if name.endswith("jinja") else name
    with pytest.raises(ValueError, match=named):
        tokens.Tokenizer.load(tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        tokens.Tokenizer.load(tmp_path / "none")


def test_answers_end_where_generation_config_says_and_without_tokens_of_qwen(tmp_path):
    """No token of pictures; a turn ends with the eos_token, a text with two more ids."""
    tiny_tokenizer.build(tmp_path, TEXTS, 400, shows_images=False)
    path = tmp_path / "tokenizer.json"
    names = {"<|im_end|>": "<|eot|>", "<|endoftext|>": "<|end|>", "<|image_pad|>": "<|other|>"}
    text = path.read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    path.write_text(text)
    plain = tokenizers.Tokenizer.from_file(str(path))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"eos_token": "<|eot|>", "pad_token": "<|end|>"}'
    )
    eot, end = plain.token_to_id("<|eot|>"), plain.token_to_id("<|end|>")
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": [{eot}, {end}, 3]}}')
    found = tokens.Tokenizer.load(tmp_path)
    assert (found.im_end, found.pad, found.stop_ids) == (eot, end, (eot, end, 3))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 0}')
    assert tokens.Tokenizer.load(tmp_path).stop_ids == (eot, 0)
    assert found.image_pad == -1 and -1 not in found.banned_ids and found.why_no_images
