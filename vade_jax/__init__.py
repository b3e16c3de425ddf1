"""VADE (arXiv 2511.18902) and group-based RL of vision-language models in JAX."""
