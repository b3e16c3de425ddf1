"""What `experiments.simulate` is made of: worlds without a model, and selectors let loose on them."""
