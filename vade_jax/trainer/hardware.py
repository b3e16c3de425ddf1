"""How well learning uses its devices, and the memory that is taken.

`perf/mfu` is the useful work of learning (`models/qwen/flops.py`) divided by the work that the devices could
have done in the same seconds. Useful work is what the algorithm needs: each prompt once, the tokens of each
valid answer, three forwards for an update and one for each set of log-probs. Padding, recomputation and
waiting add seconds but no useful work, so they lower it.
"""

import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.models.qwen import config, flops
from vade_jax.types import Metrics, Prompt, Rollouts

# Published dense bfloat16 TFLOP/s by JAX's name of the device; for others a run sets `perf.peak_tflops`. The
# first of these names that ends a word counts: an RTX A1000 is not an A100, but a GH200 is an H200.
PEAK_TFLOPS = {
    "B200": 2250.0,
    "H100 PCIe": 756.0,
    "NVL": 835.0,  # of H100 and H200
    "H100": 989.0,
    "H200": 989.0,
    "A100": 312.0,
    "TPU v6 lite": 918.0,
    "TPU v5 lite": 197.0,
    "TPU v5": 459.0,
}


def peak_tflops(device_kind: str, dtype: jnp.dtype) -> float:
    """Returns the peak TFLOP/s of a device, by its name; 0 if it is not known."""
    fitting = (x for name, x in PEAK_TFLOPS.items() if re.search(rf"{name}\b", device_kind))
    return next(fitting, 0.0) if dtype == jnp.bfloat16 else 0.0


def utilisation(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    seconds: float,
    *,
    shape: config.Config,
    forwards: int,
    vision_forwards: int,
    peak: float,
) -> Metrics:
    """Returns `perf/mfu` of learning from these answers in this many seconds.

    Learning costs `forwards` of the decoder and `vision_forwards` of the vision tower. `peak` is FLOP/s of
    all devices together; 0: unknown, so there is no MFU.
    """
    if not peak:
        return {}
    length_M = [prompt.length for prompt in prompts]
    answers = rollouts.length_N[rollouts.valid_N], rollouts.group_N[rollouts.valid_N]
    work = forwards * flops.decoder(shape.text, np.array(length_M), *answers)
    for prompt in prompts:
        for image in prompt.images:
            n = image[..., 0].size // prompt.patch**2
            tower = flops.vision(shape.vision, shape.text.width, n, image_patches=n)
            work += vision_forwards * tower
    return {"perf/mfu": work / (peak * seconds)}


def memory() -> Metrics:
    """Returns the peak memory of the fullest device of this process, if devices report it."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peak = max(found.get("peak_bytes_in_use", 0) for found in stats)
    return {"perf/max_memory_gb": peak / 1e9} if peak else {}
