"""transformers' models with every weight random, norms, biases and positions too."""

import contextlib
import dataclasses
import re

import numpy as np

from vade_jax.models.qwen import config, config_json, weights


def text(shape: config.Config, **fields) -> config.Config:
    """Returns the config with some fields of its text model changed."""
    return dataclasses.replace(shape, text=dataclasses.replace(shape.text, **fields))


def random_tensors(shape: config.Config, seed: int) -> dict[str, np.ndarray]:
    """Returns every tensor of a checkpoint: norms 1 + 0.2 r, biases 0.2 r, else r / sqrt(in).

    Scales of Qwen3.5 are 0.2 r, as 1 is added to them; its memories last for tens of tokens.
    """
    rng, is_hybrid = np.random.default_rng(seed), shape.text.linear is not None
    result = {}
    for name, size in weights.names_and_shapes(shape):
        r = rng.standard_normal(size).astype(np.float32)
        if name.endswith("bias"):
            r = 0.2 * r
        elif name.endswith("A_log"):
            r = r - 3
        elif is_hybrid and re.search(r"(layernorm|[qk]_norm|model\.norm)\.weight", name):
            r = 0.2 * r
        elif "norm" in name or "ln_q" in name:
            r = 1 + 0.2 * r
        elif "pos_embed" in name:
            pass
        elif shape.tie_embeddings or "embed_tokens" not in name:
            r = r / np.sqrt(np.prod(size[1:]))
        result[name] = r.astype(np.float32)
    return result


def build(shape: config.Config, tensors):
    """Returns the transformers model (eager, float32) with these tensors."""
    import torch
    import transformers

    fields = config_json.write(shape)
    hf = transformers.AutoConfig.for_model(**fields)
    hf._attn_implementation = "eager"
    model = getattr(transformers, fields["architectures"][0])(hf).eval()
    own = {in_memory(shape, name): torch.tensor(x) for name, x in tensors.items()}
    missing, extra = model.load_state_dict(own, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    model.tie_weights()
    return model


@contextlib.contextmanager
def in_float64():
    """Makes torch's float32 float64, so that transformers' code does not round where it asks for float32."""
    import torch

    kept, torch.float32 = torch.float32, torch.float64
    to_float, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = kept, to_float
        torch.set_default_dtype(kept)


def in_memory(shape: config.Config, name: str) -> str:
    """Returns the name that transformers 5 has for a published one."""
    if shape.family != "qwen2_5_vl":
        return name
    if name.startswith("visual."):
        return "model." + name
    return name.replace("model.", "model.language_model.", 1)


def forward(model, examples, pixels, image_token: int):
    """Returns each example's logits [length, V], and the features of all images by kind.

    The first kind replaces tokens; the others are those of DeepStack.
    """
    import torch

    size = max(len(e.ids) for e in examples)
    ids, mask = (np.zeros((len(examples), size), np.int64) for _ in range(2))
    for m, e in enumerate(examples):
        ids[m, : len(e.ids)], mask[m, : len(e.ids)] = e.ids, 1
    images = [i for e in examples for i in e.images]
    if not images:  # of a text model
        with torch.no_grad():
            found = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).logits
        return [row[keep > 0] for row, keep in zip(found.numpy(), mask, strict=True)], None
    patch = examples[0].patch
    grid = torch.tensor([[1, i.shape[0] // patch, i.shape[1] // patch] for i in images])
    flat = torch.tensor(np.concatenate([pixels(i, patch) for i in images]))
    model.model.rope_deltas = None
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            mm_token_type_ids=torch.tensor((ids == image_token).astype(np.int32)),
            pixel_values=flat,
            image_grid_thw=grid,
        ).logits.numpy()
        found = model.model.visual(flat, grid_thw=grid)
    features = [found.pooler_output, *(getattr(found, "deepstack_features", None) or [])]
    logits = [row[keep > 0] for row, keep in zip(logits, mask, strict=True)]
    return logits, [np.asarray(x) for x in features]


def blocks(shape: config.Config, **fields) -> config.Config:
    """Returns the config with some fields of its vision tower changed."""
    return dataclasses.replace(shape, vision=dataclasses.replace(shape.vision, **fields))
