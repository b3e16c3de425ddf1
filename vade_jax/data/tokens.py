"""Reads the tokenizer and chat template of a checkpoint."""

import datetime
import functools
import json
import pathlib
import re
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
# Special tokens that a chat template may use even if a Qwen checkpoint does not define them.
_DEFAULT_TOKENS = dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>")
# The date for templates that ask for it: Llama 3.2's default without a clock. With the true date, a run
# resumed tomorrow would have other prompts.
_DAY = datetime.datetime(2024, 7, 26)


class Tokenizer:
    """Converts text to ids and back, and renders the chat template of a checkpoint.

    Attributes:
        pad: id of padding.
        im_end: id that ends a turn: of "<|im_end|>" if the tokenizer has it.
        vision_start, vision_end, image_pad, video_pad: ids of these tokens; -1 if missing, as in many text
            models.
        stop_ids: ids that end an answer: of the turn, of the text, and those of generation_config.json.
        banned_ids: ids that must never be sampled: all vision tokens. A sampled image pad, for example,
            would need image features that do not exist. Unused rows of the embedding are not banned,
            because the softmax runs over all rows, as in vLLM.
        patch: pixels per side of a patch of the model's images.
        pixels: the fewest and the most pixels of an image in the model's own preprocessor; None: unknown.
    """

    def __init__(self, directory: pathlib.Path):
        tokenizer = self._tokenizer = _read_tokenizer(directory / "tokenizer.json")
        self.patch, self.pixels = _read_patch(directory), _read_pixels(directory)
        try:
            template = _GENERATION.sub(r"\1\2with\3", _read_template(directory))
            self._template = _environment().from_string(template)
            self._special = special = _read_special(directory)
        except Exception as error:  # of JSON or Jinja, or of values of other types
            raise ValueError(f"{directory}: bad chat template: {error!s:.500}") from error
        added = tokenizer.get_added_tokens_decoder().values()
        names = sorted((token.content for token in added), key=len, reverse=True)
        # Longest first, so that a token that starts with another one is matched completely. Without any added
        # token the pattern matches nothing.
        self._control = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        eos = special.get("eos_token", "")
        self.im_end = self._first_id("<|im_end|>", eos)
        text_end = self._first_id("<|endoftext|>", eos)
        self.pad = self._first_id("<|endoftext|>", special.get("pad_token", ""), eos)
        self.stop_ids = tuple(dict.fromkeys((self.im_end, text_end, *_read_ends(directory))))
        of_vision = [tokenizer.token_to_id(name) for name in VISION]
        self.banned_ids = tuple(index for index in of_vision if index is not None)
        self.vision_start, self.vision_end, _, self.image_pad, self.video_pad = (
            -1 if index is None else index for index in of_vision
        )

    @classmethod
    def load(cls, directory: str | pathlib.Path) -> "Tokenizer":
        """Reads tokenizer.json, the chat template and the ids of ends of a checkpoint directory.

        Raises:
            ValueError: tokenizer or template is missing, or a file cannot be read.
        """
        return cls(pathlib.Path(directory))

    @functools.cached_property
    def why_no_images(self) -> str:
        """Why the template cannot show images, as in a text model; "" if it can."""
        try:
            shown = self.render([{"role": "user", "content": [{"type": "image"}]}])
        except ValueError as error:  # the template needs text instead of parts, or is broken
            return str(error)
        if self.image_pad < 0:
            return "its tokenizer has no <|image_pad|>"
        return "" if "<|image_pad|>" in shown else "the checkpoint's chat template shows no images"

    def _first_id(self, *names: str) -> int:
        """Returns the id of the first of these tokens that exists."""
        for name in filter(None, names):
            if (index := self._tokenizer.token_to_id(name)) is not None:
                return index
        raise ValueError(f"the tokenizer has none of {names}: name its end token as eos_token")

    def __len__(self) -> int:
        """Number of ids that have a token; the embedding may have more rows."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def clean(self, text: str) -> str:
        """Returns `text` with each control token replaced by a space, which keeps its two sides apart."""
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
        variables = {"add_generation_prompt": True, "tools": None, "documents": None}
        variables |= self._special | options
        try:
            return self._template.render(messages=messages, **variables)
        except Exception as error:  # a template is a program and may raise anything
            raise ValueError(f"the checkpoint's chat template fails: {error!r:.500}") from error

    def opening(self, **options: Any) -> str:
        """Returns the "<think>", with the space after it, that the template starts answers with, or "".

        `options` are those of `render`. Raises like `render`.
        """
        content = "?" if self.why_no_images else [{"type": "text", "text": "?"}]
        prompt = self.render([{"role": "user", "content": content}], **options)
        match = re.search(r"<think>\s*\Z", prompt)
        return match[0] if match else ""


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


def _read_tokenizer(path: pathlib.Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer in a file."""
    lfs.refuse_pointer(path)
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(
            f"{path} is not a tokenizer: {error}; give a checkpoint directory"
        ) from error
    # A training tool may have saved truncation and padding in the file. transformers ignores both as well.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


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
    config = _DEFAULT_TOKENS | _read_json(directory / "tokenizer_config.json")
    tokens = {name: x for name, x in config.items() if name.endswith("_token")}
    contents = {name: x["content"] if isinstance(x, dict) else x for name, x in tokens.items()}
    return {name: content for name, content in contents.items() if isinstance(content, str)}


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
        raise ValueError(f"{path}: patch_size {patch!r:.80} is not one of {list(images.PIXELS)}")
    return patch


def _read_pixels(directory: pathlib.Path) -> tuple[int, int] | None:
    """Returns the limits in preprocessor_config.json in either form, or None."""
    fields = _read_json(directory / PREPROCESSOR)
    size = fields.get("size") or {}
    low = fields.get("min_pixels") or size.get("shortest_edge")
    high = fields.get("max_pixels") or size.get("longest_edge")
    return (low, high) if low and high else None


def write_pixels(directory: str | pathlib.Path, min_pixels: int, max_pixels: int) -> None:
    """Writes the limits of `Tokenizer.pixels` into preprocessor_config.json, if there is one."""
    path = pathlib.Path(directory) / PREPROCESSOR
    if fields := _read_json(path):
        fields |= {"min_pixels": min_pixels, "max_pixels": max_pixels}
        # The same limits as newer files name them; despite these names they are areas.
        fields["size"] = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
        path.write_text(json.dumps(fields, indent=2) + "\n")


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the content of a file, or {} if it is missing."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): download it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object: download it again")
    return content
