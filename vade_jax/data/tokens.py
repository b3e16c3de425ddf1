"""Reads the tokenizer and chat template of a checkpoint, and builds a tiny one of the same form."""

import datetime
import functools
import json
import pathlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
import tokenizers

from vade_jax import lfs
from vade_jax.data import images

# Added tokens in the published order. `PLAIN` are in the vocabulary but not marked as special.
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>"),
    *("<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>"),
    *("<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
PLAIN = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
    *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
VISION = SPECIAL[9:14]
PREPROCESSOR = "preprocessor_config.json"
# Special tokens that a chat template may name, and their values if a Qwen checkpoint does not define them.
_TOKENS = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
)
_DEFAULT_TOKENS = dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>")
_NESTED = 8  # passes in which `clean` removes control tokens that are nested in each other
_BROKEN = (ValueError, AttributeError, LookupError, TypeError, RecursionError)
# What a template gets that asks for today: Llama 3.2's own where there is no clock. With the true day a run
# that is resumed tomorrow would have other prompts.
_DAY = datetime.datetime(2024, 7, 26)
SPARE_ROWS = 10  # unused rows of the embedding after the last token; published files have some too


class Tokenizer:
    """Converts text to ids and back, and renders the chat template of a checkpoint.

    Attributes:
        pad: id of padding.
        im_end: id that ends a turn; "<|im_end|>" where there is one.
        vision_start, vision_end, image_pad, video_pad: ids of these tokens; -1 where there is none, as in
            many text models.
        stop_ids: ids that end an answer (the end of the turn, the end of the text).
        banned_ids: ids that must never be sampled: all vision tokens. A sampled image pad, for example,
            would need image features that do not exist. Unused rows of the embedding are not banned,
            because the softmax runs over all rows, as in vLLM.
        why_no_images: why the template has no place for images, as in a text model; "" if it has one.
        patch: pixels per side of a patch of the model's images.
        pixels: the fewest and the most pixels of an image in the model's own preprocessor; None: unknown.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        template: str,
        special: Mapping[str, str] = {},
        patch: int = images.PATCH,
        end_ids: Sequence[int] = (),
        pixels: tuple[int, int] | None = None,
    ):
        """Makes it from a tokenizer, the text of a template, and the special tokens that it may name.

        `end_ids` are further ids that end an answer.
        """
        self._tokenizer, self.patch, self.pixels = tokenizer, patch, pixels
        self._template = _environment().from_string(_GENERATION.sub(r"\1\2with\3", template))
        self._special = dict(special)
        added = tokenizer.get_added_tokens_decoder().values()
        names = sorted((token.content for token in added), key=len, reverse=True)
        # Longest first, so that a token that starts with another one is matched whole. Without any added
        # token the pattern matches nothing.
        self._control = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        eos = special.get("eos_token", "")
        self.im_end = self._first_id("<|im_end|>", eos)
        text_end = self._first_id("<|endoftext|>", eos)
        self.pad = self._first_id("<|endoftext|>", special.get("pad_token", ""), eos)
        self.stop_ids = tuple(dict.fromkeys((self.im_end, text_end, *end_ids)))
        of_vision = [tokenizer.token_to_id(name) for name in VISION]
        self.banned_ids = tuple(index for index in of_vision if index is not None)
        self.vision_start, self.vision_end, _, self.image_pad, self.video_pad = (
            -1 if index is None else index for index in of_vision
        )
        self.why_no_images = _why_no_images(self)

    @property
    def shows_images(self) -> bool:
        """Whether the template has a place for images."""
        return not self.why_no_images

    def _first_id(self, *names: str) -> int:
        """Returns the id of the first of these tokens that there is."""
        for name in filter(None, names):
            if (index := self._tokenizer.token_to_id(name)) is not None:
                return index
        named = " and no ".join(dict.fromkeys(filter(None, names)))
        raise ValueError(f"the tokenizer has no {named}: name its end token as eos_token")

    def __len__(self) -> int:
        """Number of ids that have a token; the embedding may have more rows."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, directory: str | pathlib.Path) -> "Tokenizer":
        """Reads tokenizer.json, the chat template and the ids of ends of a checkpoint directory.

        Raises:
            ValueError: tokenizer or template is missing, or a file cannot be read.
        """
        path = pathlib.Path(directory) / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{path} does not exist; give a checkpoint directory")
        lfs.refuse_pointer(path)
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{path} is not a tokenizer: {error}") from error
        # A training tool may have saved truncation and padding in the file. transformers ignores both too.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        patch, ends = _read_patch(path.parent), _read_ends(path.parent)
        pixels = _read_pixels(path.parent)
        try:
            template, special = _read_template(path.parent), _read_special(path.parent)
            return cls(tokenizer, template, special, patch, ends, pixels)
        # Invalid JSON, values of other types, or a template that is invalid or nested too deep.
        except (*_BROKEN, jinja2.TemplateError) as error:
            raise ValueError(f"{path.parent}: bad chat template: {error!s:.500}") from error

    def clean(self, text: str) -> str:
        """Returns `text` without control tokens, including those that appear when others are removed."""
        for _ in range(_NESTED):
            if (cleaned := self._control.sub("", text)) == text:
                return text
            text = cleaned
        # The text is nested so deep on purpose. A space in place of a token keeps its two sides apart, so
        # this removal creates no new token.
        return self._control.sub(" ", text)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`. Control tokens become special ids, so `clean` users' texts before."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of `ids`, without special tokens and without ids that have no token."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Returns the conversation as text, up to the start of the assistant's answer.

        The result equals that of transformers' `apply_chat_template`. `options` are variables of the
        template, such as Qwen3's `enable_thinking`.

        Raises:
            ValueError: the template fails.
        """
        given = {"add_generation_prompt": True, "tools": None, "documents": None}
        given |= self._special | options
        try:
            return self._template.render(messages=messages, **given)
        except Exception as error:  # a template is a program and may raise anything
            raise ValueError(f"the checkpoint's chat template fails: {error!r:.500}") from error

    def opening(self, **options: Any) -> str:
        """Returns the "<think>", with the space after it, that the template starts answers with, or "".

        `options` are those of `render`. Raises like `render`.
        """
        content = [{"type": "text", "text": "?"}] if self.shows_images else "?"
        prompt = self.render([{"role": "user", "content": content}], **options)
        found = re.search(r"<think>\s*\Z", prompt)
        return found[0] if found else ""


def _why_no_images(tokenizer: Tokenizer) -> str:
    try:
        shown = tokenizer.render([{"role": "user", "content": [{"type": "image"}]}])
    except ValueError as error:  # the template needs text instead of parts, or is broken
        return str(error)
    if tokenizer.image_pad < 0:
        return "its tokenizer has no <|image_pad|>"
    return "" if "<|image_pad|>" in shown else "the checkpoint's chat template shows no images"


@functools.cache
def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Returns a Jinja environment like that of transformers, which published templates are written for."""

    def fail(message: str):
        raise jinja2.exceptions.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    names: dict[str, Any] = environment.globals
    names.update(raise_exception=fail, strftime_now=_DAY.strftime)
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    return environment


# The block {% generation %} ... {% endgeneration %} around the assistant's text is shown unchanged. As in
# transformers, a variable that is set inside is not defined after it, as in a `with` block.
_GENERATION = re.compile(r"({%[-+]?\s*)(end)?generation(\s*[-+]?%})")


def _read_template(directory: pathlib.Path) -> str:
    """Returns the chat template from the first of the three files in which checkpoints keep it."""
    if (path := directory / "chat_template.jinja").is_file():
        return path.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = _read_json(directory / name).get("chat_template")
        if isinstance(template, list):  # several templates with names
            template = {t["name"]: t["template"] for t in template}.get("default")
        if isinstance(template, str) and template:
            return template
    raise ValueError(
        "there is none (chat_template.jinja, chat_template.json or tokenizer_config.json)"
    )


def _read_special(directory: pathlib.Path) -> dict[str, str]:
    """Returns the special tokens that a template may name, such as `eos_token`, found as in transformers."""
    config = _read_json(directory / "tokenizer_config.json")
    # special_tokens_map.json is older. It is ignored if tokenizer_config.json defines the added tokens.
    is_whole = "added_tokens_decoder" in config
    older = {} if is_whole else _read_json(directory / "special_tokens_map.json")
    named = {name: (_DEFAULT_TOKENS | config | older).get(name) for name in _TOKENS}
    contents = {name: x["content"] if isinstance(x, dict) else x for name, x in named.items()}
    return {name: content for name, content in contents.items() if content is not None}


def _read_ends(directory: pathlib.Path) -> tuple[int, ...]:
    """Returns the ids that end an answer according to generation_config.json, if there is one."""
    path = directory / "generation_config.json"
    ends = _read_json(path).get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(isinstance(end, int) for end in ends):
        raise ValueError(f"{path}: eos_token_id {ends!r:.80} must be ids: download it again")
    return tuple(ends)


def _read_patch(directory: pathlib.Path) -> int:
    """Returns the patch size of the model's images; that of Qwen2.5-VL if the model has no images."""
    path = directory / "config.json"
    patch = (_read_json(path).get("vision_config") or {}).get("patch_size", images.PATCH)
    if patch not in images.PIXELS:
        raise ValueError(f"{path}: patch_size {patch!r:.80} is none of {list(images.PIXELS)}")
    return patch


def _read_pixels(directory: pathlib.Path) -> tuple[int, int] | None:
    """Returns the limits of preprocessor_config.json in either form; None if it has none."""
    found = _read_json(directory / PREPROCESSOR)
    size = found.get("size")
    size = size if isinstance(size, dict) else {}  # despite its names, the values are areas
    low, high = (
        found.get(name) or size.get(of_size)
        for name, of_size in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
    )
    if isinstance(low, int) and isinstance(high, int) and 0 < low <= high:
        return low, high
    return None


def write_pixels(directory: str | pathlib.Path, min_pixels: int, max_pixels: int) -> None:
    """Writes the limits of `Tokenizer.pixels` into preprocessor_config.json, if there is one."""
    path = pathlib.Path(directory) / PREPROCESSOR
    if found := _read_json(path):
        found |= _limits(min_pixels, max_pixels)
        path.write_text(json.dumps(found, indent=2) + "\n")


def _limits(min_pixels: int, max_pixels: int) -> dict[str, Any]:
    return {
        "min_pixels": min_pixels,
        "max_pixels": max_pixels,
        # The same limits as newer files name them; despite these names they are areas.
        "size": {"shortest_edge": min_pixels, "longest_edge": max_pixels},
    }


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the content of a file, or {} if there is none."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error}): download it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object: download it again")
    return content


# ------------------------------------------------------------------------- a tiny checkpoint
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # the published pattern, in which every digit is a separate token
_FILES = pathlib.Path(__file__).with_name("templates")


def build(
    directory: str | pathlib.Path,
    texts: Sequence[str],
    vocab_size: int,
    *,
    min_pixels: int = 56 * 56,
    max_pixels: int = 112 * 112,
    shows_images: bool = True,
    patch: int = images.PATCH,
) -> Tokenizer:
    """Writes a tiny tokenizer in the published form and returns it.

    It is a byte-level BPE over NFC text, with the special tokens after the vocabulary in the published
    order. A chat template, preprocessor_config.json and generation_config.json are written too. The
    template has no default system turn, because short prompts matter on a CPU.

    Args:
        directory: where to write; created if it is missing.
        texts: questions and answers to learn merges from.
        vocab_size: rows of the embedding; at least 10 of them stay unused, as in published files.
        min_pixels: smallest area of a resized image, written for engines that resize.
        max_pixels: largest area of a resized image.
        shows_images: whether the template has a place for images. If False, a turn's content is a text,
            as in published text models.
        patch: pixels per side of a patch of the model.

    Raises:
        ValueError: `vocab_size` is too small.
    """
    num_merged = vocab_size - len(SPECIAL) - len(PLAIN) - SPARE_ROWS
    if num_merged < 256:
        raise ValueError(
            f"vocab_size={vocab_size} has no room for 256 bytes, {len(SPECIAL + PLAIN)} "
            f"special tokens and {SPARE_ROWS} spare rows; use at least {vocab_size + 256 - num_merged}"
        )
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _train(texts, num_merged)
    tokenizer.save(str(directory / "tokenizer.json"))
    template = _FILES / ("vision.jinja" if shows_images else "text.jinja")
    shutil.copyfile(template, directory / "chat_template.jinja")
    shutil.copyfile(_FILES / "tokenizer_config.json", directory / "tokenizer_config.json")
    ids: dict[str, Any] = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    configs = _configs(ids, patch, min_pixels, max_pixels)
    if not shows_images:
        del configs[PREPROCESSOR]
    for name, content in configs.items():
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (directory / name).write_text(text + "\n", encoding="utf-8")
    return Tokenizer.load(directory)


def _train(texts: Sequence[str], num_merged: int) -> tokenizers.Tokenizer:
    """Returns a byte-level BPE with `num_merged` entries, followed by the added tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_SPLIT), "isolated")
    to_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=num_merged,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Every prompt contains the names of the roles, so these count as often as the texts.
    roles = ["user\n", "assistant\n", "system\n"] * len(texts)
    tokenizer.train_from_iterator([*texts, *roles], trainer)
    added = functools.partial(tokenizers.AddedToken, normalized=False)
    tokenizer.add_special_tokens([added(name, special=True) for name in SPECIAL])
    tokenizer.add_tokens([added(name, special=False) for name in PLAIN])
    return tokenizer


def _configs(
    ids: Mapping[str, int], patch: int, min_pixels: int, max_pixels: int
) -> dict[str, dict[str, Any]]:
    """Returns the content of the JSON files next to tokenizer.json, by file name."""
    mean, std = map(list, images.PIXELS[patch])
    return {
        PREPROCESSOR: {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor" if patch == 14 else "Qwen3VLProcessor",
            **_limits(min_pixels, max_pixels),
            "patch_size": patch,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": mean,
            "image_std": std,
        },
        "generation_config.json": {
            "bos_token_id": ids["<|endoftext|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "do_sample": True,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "repetition_penalty": 1.0,
        },
    }
