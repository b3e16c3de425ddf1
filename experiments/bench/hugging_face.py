"""Runs transformers on the same weights, prompts and answers, in torch, on a GPU if there is one."""

import importlib.util
import time
from collections.abc import Callable, Sequence

import numpy as np

from vade_jax.data import images
from vade_jax.models.qwen import config, vision, weights
from vade_jax.types import Params, Prompt, Rollouts

IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def load(directory: str, dtype: str, **options):
    """Returns the model of a directory, on the GPU if torch sees one, with attention by SDPA."""
    import torch
    import transformers

    torch.backends.cuda.matmul.allow_tf32 = False
    config = transformers.AutoConfig.from_pretrained(directory)
    model = getattr(transformers, config.architectures[0]).from_pretrained(
        directory, dtype=dtype, attn_implementation="sdpa", **options
    )
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def text_model(shape: config.Config, params: Params):
    """Returns the decoder as transformers' Qwen2, with the same weights."""
    import torch
    import transformers

    # The fields for Qwen2.5-VL include Qwen2's. For text its rotary embedding equals the plain one.
    fields = {**shape.to_hf(), "model_type": "qwen2", "rope_scaling": None}
    del fields["vision_config"], fields["architectures"]
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config.from_dict(fields))
    tensors = {
        name: torch.from_numpy(np.array(x))
        for name, x in weights.from_params(shape, params)
        if name.startswith("model.")
    }
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    return model


def inputs(prompts: Sequence[Prompt], repeats: int) -> dict:
    """Returns a model's inputs for prompts of one length, each repeated `repeats` times, on the host."""
    import torch

    ids_NP = np.repeat(np.stack([prompt.token_P for prompt in prompts]), repeats, 0).astype(
        np.int64
    )
    found = {"input_ids": ids_NP, "attention_mask": np.ones_like(ids_NP)}
    pictures = [x for prompt in prompts for _ in range(repeats) for x in prompt.images]
    if pictures:
        patch = prompts[0].patch
        pixels = np.concatenate(
            [np.asarray(vision.normalize(images.patches(x, patch))) for x in pictures]
        )
        # The processor gives a picture as two equal frames, in the order (channel, frame, y, x).
        pixels = pixels.reshape(len(pixels), 3, 1, -1).repeat(2, 2).reshape(len(pixels), -1)
        found["pixel_values"] = pixels
        found["image_grid_thw"] = np.array(
            [(1, x.shape[0] // patch, x.shape[1] // patch) for x in pictures]
        )
        # Image tokens are those with the same time position as a neighbour (`data.batching`).
        time_NP = np.repeat(np.stack([x.position_PX[:, 0] for x in prompts]), repeats, 0)
        same_NP = np.diff(time_NP, axis=1) == 0
        is_image_NP = np.pad(same_NP, [(0, 0), (0, 1)]) | np.pad(same_NP, [(0, 0), (1, 0)])
        found["mm_token_type_ids"] = is_image_NP.astype(np.int32)
    return {name: torch.from_numpy(x) for name, x in found.items()}


def logprobs(
    directory: str, prompts: Sequence[Prompt], rollouts: Rollouts
) -> tuple[np.ndarray, str]:
    """Returns the log-probs of the answers in float32, and the version of transformers."""
    import torch
    import transformers

    model = load(directory, "float32").eval()
    repeats = len(rollouts.length_N) // len(prompts)
    given, T = _on(model, inputs(prompts, repeats)), rollouts.token_NT.shape[1]
    answer_NT = torch.from_numpy(rollouts.token_NT.astype(np.int64)).to(model.device)
    rows = []
    for n in range(len(answer_NT)):  # one at a time, because the logits of one answer are large
        with torch.no_grad():
            one = _behind(_row(given, n), answer_NT[n : n + 1])
            logits_TV = model(**one, logits_to_keep=T + 1).logits[0, :-1].float()
        logp_TV = torch.log_softmax(logits_TV, -1)
        rows.append(logp_TV.gather(1, answer_NT[n][:, None])[:, 0].cpu().numpy())
    return np.stack(rows), transformers.__version__


def generate_seconds(
    directory: str,
    prompts: Sequence[Prompt],
    num_rollouts: int,
    length: int,
    rounds: int,
    dtype: str,
) -> float:
    """Returns the shortest time of `generate` for answers of exactly this length."""
    import torch

    model = load(directory, dtype).eval()
    given, times = _on(model, inputs(prompts, num_rollouts)), []
    for _ in range(rounds + 1):  # the first round is not counted
        start = time.perf_counter()
        with torch.no_grad():
            done = model.generate(
                **given, do_sample=True, min_new_tokens=length, max_new_tokens=length, top_k=0
            )
        assert done.cpu().shape[1] == given["input_ids"].shape[1] + length
        times.append(time.perf_counter() - start)
    return min(times[1:])


def generate_text(
    shape: config.Config, params: Params, prompts: Sequence[Prompt], num_rollouts: int
) -> Callable[[int], None]:
    """Returns `generate(length)`: answers of exactly this length, with a cache, from a text model."""
    import torch

    model = text_model(shape, params).eval()
    given = inputs(prompts, num_rollouts)

    def generate(length: int) -> None:
        with torch.no_grad():
            model.generate(
                **given, do_sample=True, min_new_tokens=length, max_new_tokens=length, top_k=0
            )

    return generate


def _on(model, given: dict) -> dict:
    """Returns the inputs on the model's device, with pictures in its dtype."""
    return {
        name: x.to(model.device, model.dtype if name == "pixel_values" else None)
        for name, x in given.items()
    }


def _row(given: dict, n: int) -> dict:
    """Returns the inputs of one row; all rows have the same number of images, of one size."""
    rows = len(given["input_ids"])

    def cut(x):
        size = len(x) // rows
        return x[n * size : (n + 1) * size]

    return {name: cut(x) for name, x in given.items()}


def _behind(given: dict, answer_1T) -> dict:
    """Returns a row with an answer appended to its prompt."""
    import torch

    fill = {"input_ids": answer_1T, "attention_mask": torch.ones_like(answer_1T)}
    fill["mm_token_type_ids"] = torch.zeros_like(answer_1T)
    return {
        name: torch.cat([x, fill[name].to(x.dtype)], 1) if name in fill else x
        for name, x in given.items()
    }
