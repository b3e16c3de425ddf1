"""A plugin brings JAX, NumPy and chex into the other trainer, and runs where the rest is missing."""

import subprocess
import sys

# An import of a name that is None here fails as if it were not installed.
CODE = """
import sys
for name in ("flax", "vllm", "optax", "orbax", "matplotlib", "ml_collections", "torch",
             "transformers", "datasets", "prime_rl", "verifiers"):
    sys.modules[name] = None
from vade_jax.plugins import choosing, prime_rl
from vade_jax.selector import keep
selector = choosing.make_selector(range(9), "vade", seed=0, num_rollouts=2)
ids = selector.select(3)
selector.observe(ids * 2, rewards=[0, 1, 1, 0, 0, 1])
assert keep([0, 0, 1], [5, 6, 6]).tolist() == [False, True, True]
selector.load_state_dict(selector.state_dict())
print("chose", len(ids))
"""


def test_the_selector_and_the_plugin_for_prime_rl_run_without_the_rest():
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "chose 3", result.stderr
