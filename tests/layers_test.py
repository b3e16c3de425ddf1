"""Imports point down and never to experiments, siblings do not meet, leaves import what they list."""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
LEVEL = {
    "types": 0,
    "atomic": 0,
    "arrays": 0,
    "client": 0,
    "lfs": 0,
    "fields": 0,
    "imports": 0,
    "settings": 0,
    "rng": 0,
    "tables": 0,
    "run": 5,
    "samplers": 1,
    "losses": 1,
    "rewards": 1,
    "selector": 2,
    "models": 2,
    "data": 2,
    "rollout": 3,
    "trainer": 4,
    "store": 5,
    "plugins": 5,
    # The wall: what trains does not import its page. Hooks are handed in: run/hooks.py.
    "report": 7,
}
LEAVES = {
    "plugins": {"samplers", "selector", "rewards"},
    "store": {"types", "arrays", "atomic"},
    "report": {"types", "atomic", "tables", "store", "data"},
}
# Heavy or optional packages, and the only files that may import them.
ONLY_IN = {
    # What trains knows nothing of what studies it, which is handed in: run/hooks.py.
    "experiments": set(),
    "datasets": {
        "vade_jax/data/hub.py",
        "vade_jax/data/row_files.py",
        "vade_jax/plugins/trl_trainer.py",
    },
    "huggingface_hub": {"vade_jax/data/hub.py"},
    "httpx": set(),
    "matplotlib": set(),
    "openai": {"vade_jax/client.py"},
    "sympy": {"vade_jax/rewards/expression_worker.py"},
    "tenacity": set(),
    "torch": {"vade_jax/run/gguf.py"},
    "vllm": set(),
    "wandb": {"vade_jax/store/metrics.py"},
    "transformers": {"vade_jax/run/gguf.py"},
    "ml_collections": set(),
    "absl": set(),
}
FILES = sorted((ROOT / "vade_jax").rglob("*.py"))


@functools.cache
def imports(path):
    """Returns the dotted names that a file imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def part(dotted):
    """Returns the sub-package of a dotted name inside vade_jax, or None."""
    words = dotted.split(".")
    return words[1] if words[0] == "vade_jax" and len(words) > 1 else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    own = path.relative_to(ROOT / "vade_jax").parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for dotted in imports(path):
        other = part(dotted)
        if other is None or other == own:
            continue
        assert LEVEL[other] <= LEVEL[own], f"{path}: {own} imports {dotted}"
        assert LEVEL[own] != 1 or LEVEL[other] != 1, f"{path}: siblings: {dotted}"
        assert other != "plugins", f"{path}: nothing else needs {dotted}"
        assert other in LEAVES.get(own, LEVEL), f"{path}: {own} is a leaf: {dotted}"


@pytest.mark.parametrize("package", ONLY_IN)
def test_heavy_packages_stay_in_their_file(package):
    users = {
        str(path.relative_to(ROOT))
        for path in FILES
        if package in {dotted.split(".")[0] for dotted in imports(path)}
    }
    assert users <= ONLY_IN[package]
