"""A plugin brings JAX, NumPy and chex into the other trainer, and nothing else of this package's."""

import importlib.util
import subprocess
import sys

import pytest

HEAVY = ("flax", "vllm", "optax", "orbax", "matplotlib", "ml_collections")
CODE = """
import sys
import {framework}
before = set(sys.modules)
import {module}
print([name for name in {heavy} if name in set(sys.modules) - before])
"""


def imported(module, framework="sys"):
    code = CODE.format(module=module, framework=framework, heavy=HEAVY)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.splitlines()[-1]


@pytest.mark.parametrize("module", ["vade_jax.selector", "vade_jax.plugins.choosing"])
def test_the_selector_imports_nothing_heavy(module):
    assert imported(module) == "[]"


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("framework", "module"),
    [
        ("trl", "vade_jax.plugins.trl_trainer"),
        ("verl", "vade_jax.plugins.verl_dataset"),
        ("verl", "vade_jax.plugins.verl_replay"),
    ],
)
def test_a_plugin_imports_nothing_heavy(framework, module):
    if not importlib.util.find_spec(framework):
        pytest.skip(f"needs {framework}")
    assert imported(module, framework) == "[]"
