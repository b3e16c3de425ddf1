"""What a step does with its devices: the share of their peak, and their memory.

`perf/mfu` is the useful work of learning (`models/qwen/flops.py`) over what the devices could have done
in the same seconds. Its work is what the algorithm asks for: each prompt once, each valid answer's own
tokens, three forwards for an update and one for each set of log-probs. Padding, recomputed activations and
waiting are in the seconds alone, so they lower it.
"""

import dataclasses
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.data import images
from vade_jax.models.qwen import config, flops
from vade_jax.types import Metrics, Prompt, Rollouts

# Published dense bfloat16 TFLOP/s by what JAX calls the device. The first name in it that ends with a
# word counts: an RTX A1000 is no A100, a GH200 is an H200.
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
    """Returns the peak of a device as its name tells it; 0 where it is not known."""
    if dtype != jnp.bfloat16:
        return 0.0
    fitting = (x for name, x in PEAK_TFLOPS.items() if re.search(rf"{name}\b", device_kind))
    return next(fitting, 0.0)


@dataclasses.dataclass(frozen=True)
class Utilisation:
    """Measures `perf/mfu` of a policy's learning.

    Attributes:
        shape: of the model.
        forwards: how many forwards of the decoder a step's learning is worth.
        vision_forwards: of the vision tower.
        peak: FLOP/s of all devices together; 0: unknown, nothing is measured.
    """

    shape: config.Config
    forwards: int
    vision_forwards: int
    peak: float

    def __call__(self, prompts: Sequence[Prompt], rollouts: Rollouts, seconds: float) -> Metrics:
        """Returns the share of the peak that learning from these answers had, in so many seconds."""
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
            x.shape[0] * x.shape[1] // images.PATCH**2 for prompt in prompts for x in prompt.images
        ]
        tower = sum(flops.vision(self.shape.vision, out_width, n, image_patches=n) for n in patches)
        return self.forwards * decoder + self.vision_forwards * tower


def memory() -> Metrics:
    """Returns the most that was ever in use on a device of this process, where devices tell it."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [found["peak_bytes_in_use"] for found in stats if "peak_bytes_in_use" in found]
    return {"perf/max_memory_gb": max(peaks) / 1e9} if peaks else {}
