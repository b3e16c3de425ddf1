"""The parts of `experiments.simulate`: worlds without a model, and selectors that play in them."""
