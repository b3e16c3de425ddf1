"""How well a step uses its devices: MFU and memory.

`perf/mfu` is the useful work of learning (`models/qwen/flops.py`) divided by the work that the devices could
have done in the same seconds. Useful work is what the algorithm needs: each prompt once, the tokens of each
valid answer, three forwards for an update and one for each set of log-probs. Padding, recomputation and
waiting add seconds but no useful work, so they lower it.
"""

import dataclasses
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.models.qwen import config, flops
from vade_jax.types import Metrics, Prompt, Rollouts

# Published dense bfloat16 TFLOP/s by JAX's name of the device. The first of these names that ends a word
# counts: an RTX A1000 is not an A100, but a GH200 is an H200.
PEAK_TFLOPS = {
    "B200": 2250.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H200 NVL": 835.0,
    "H100": 989.0,
    "H200": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L40": 181.0,
    "L4": 121.0,
    "TPU v6 lite": 918.0,
    "TPU v6e": 918.0,
    "TPU v5 lite": 197.0,
    "TPU v5e": 197.0,
    "TPU v5": 459.0,
    "TPU v5p": 459.0,
    "TPU v4": 275.0,
}


def peak_tflops(device_kind: str, dtype: jnp.dtype) -> float:
    """Returns the peak TFLOP/s of a device, by its name; 0 if it is not known."""
    if dtype != jnp.bfloat16:
        return 0.0
    fitting = (x for name, x in PEAK_TFLOPS.items() if re.search(rf"{name}\b", device_kind))
    return next(fitting, 0.0)


@dataclasses.dataclass(frozen=True)
class Utilisation:
    """Computes `perf/mfu`.

    Attributes:
        shape: the model's.
        forwards: the cost of a step's learning, in forwards of the decoder.
        vision_forwards: the same, in forwards of the vision tower.
        peak: FLOP/s of all devices together; 0: unknown, so there is no MFU.
    """

    shape: config.Config
    forwards: int
    vision_forwards: int
    peak: float

    def __call__(self, prompts: Sequence[Prompt], rollouts: Rollouts, seconds: float) -> Metrics:
        """Returns the metric for learning from these answers in this many seconds."""
        if not self.peak:
            return {}
        return {"perf/mfu": self.work(prompts, rollouts) / (self.peak * seconds)}

    def work(self, prompts: Sequence[Prompt], rollouts: Rollouts) -> int:
        """Returns the useful FLOPs."""
        valid_N = rollouts.valid_N
        decoder = flops.decoder(
            self.shape.text,
            np.array([prompt.length for prompt in prompts]),
            rollouts.length_N[valid_N],
            rollouts.group_N[valid_N],
        )
        if self.shape.vision is None:
            return self.forwards * decoder
        out_width = self.shape.text.width
        patches = [
            x.shape[0] * x.shape[1] // prompt.patch**2 for prompt in prompts for x in prompt.images
        ]
        tower = sum(flops.vision(self.shape.vision, out_width, n, image_patches=n) for n in patches)
        return self.forwards * decoder + self.vision_forwards * tower


def memory() -> Metrics:
    """Returns the peak memory of the fullest device of this process, if devices report it."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [found["peak_bytes_in_use"] for found in stats if "peak_bytes_in_use" in found]
    return {"perf/max_memory_gb": max(peaks) / 1e9} if peaks else {}
