"""A plugin brings JAX, NumPy and chex into the other trainer, and runs where the rest is missing."""

import subprocess
import sys

# An import of a name that is None here fails as if it were not installed.
CODE = """
import sys
for name in ("flax", "vllm", "optax", "orbax", "matplotlib", "ml_collections"{more}):
    sys.modules[name] = None
{imports}
from vade_jax.plugins import choosing
selector = choosing.make_selector(range(9), "vade", seed=0, num_rollouts=2)
ids = selector.select(3)
selector.observe(ids, [0, 1, 2], 2)
selector.load_state_dict(selector.state_dict())
print("chose", len(ids))
"""


def run(imports, more=""):
    code = CODE.format(imports=imports, more=more)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "chose 3"


def test_the_selector_runs_without_the_rest_of_the_package():
    run("import vade_jax.selector", more=', "torch", "transformers"')


def test_the_plugin_for_prime_rl_imports_nothing_of_it():
    run("from vade_jax.plugins import prime_rl", more=', "prime_rl", "verifiers", "torch"')
