"""What a step costs: seconds, under verl's names, memory, and how well learning uses its devices.

`perf/mfu` is the useful work of learning (`models/qwen/flops.py`) divided by the peak work of the devices in
the same seconds. Useful work is what the algorithm needs: each prompt once, the tokens of each valid answer,
three forwards for an update and one for each set of log-probs. Padding, recomputation and waiting add seconds
but no useful work, so they lower it.
"""

import collections
import contextlib
import re
import time
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.models.qwen import config, flops
from vade_jax.types import Metrics, Prompt, Rollouts


class Clock:
    """Times named parts: `with clock("gen"): ...`."""

    def __init__(self):
        self._start = time.perf_counter()
        # Times of other threads, which overlap with the rest of a step, are added to it.
        self.seconds = collections.defaultdict[str, float](float)

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time of the block to `timing_s/<name>`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def metrics(
        self, prompts: Sequence[Prompt], rollouts: Rollouts, engine_devices: int
    ) -> Metrics:
        """Returns `timing_s/*`, and the tokens a second of the whole step.

        As in verl, the tokens of a prompt count once for each of its answers, and the throughput is that of
        one training device. Device-seconds include the `engine_devices`, which only answer.
        """
        step = time.perf_counter() - self._start
        context = np.array([prompt.length for prompt in prompts])[rollouts.group_N]
        num_tokens = int(rollouts.length_N.sum() + context.sum())
        return {f"timing_s/{name}": s for name, s in self.seconds.items()} | {
            "timing_s/step": step,
            "perf/device_seconds": step * (jax.device_count() + engine_devices),
            "perf/throughput": num_tokens / step / jax.device_count(),
        }


# ------------------------------------------------------------------------------ devices
# Published dense bfloat16 TFLOP/s by JAX's name of the device; others have no `perf/mfu`. The first of these
# names at the end of a word counts: an RTX A1000 is not an A100, but a GH200 is an H200.
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


def peak_flops(devices: jax.sharding.Mesh, dtype: jnp.dtype) -> float:
    """Returns the peak FLOP/s of all devices together; 0 if it is not known."""
    kind = devices.devices.flat[0].device_kind
    fitting = [x for name, x in PEAK_TFLOPS.items() if re.search(rf"{name}\b", kind)]
    return 1e12 * fitting[0] * devices.size if fitting and dtype == jnp.bfloat16 else 0.0


def utilisation(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    seconds: float,
    *,
    shape: config.Config,
    forwards: Sequence[int],
    peak: float,
) -> Metrics:
    """Returns `perf/mfu` of learning from these answers in this many seconds.

    An update costs `forwards` passes of the decoder and of the vision tower. `peak` is FLOP/s of all devices
    together; 0: unknown, then no MFU is returned.
    """
    if not peak:
        return {}
    length_M = [prompt.length for prompt in prompts]
    answers = rollouts.length_N[rollouts.valid_N], rollouts.group_N[rollouts.valid_N]
    work = forwards[0] * flops.decoder(shape.text, np.array(length_M), *answers)
    for prompt in prompts:
        for image in prompt.images:
            assert shape.vision is not None
            n = image[..., 0].size // prompt.patch**2
            work += forwards[1] * flops.vision(shape.vision, shape.text.width, n, image_patches=n)
    return {"perf/mfu": work / (peak * seconds)}


def memory() -> Metrics:
    """Returns the peak memory of the fullest device of this process, if devices report it."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peak = max(device.get("peak_bytes_in_use", 0) for device in stats)
    return {"perf/max_memory_gb": peak / 1e9} if peak else {}
