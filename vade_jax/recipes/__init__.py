"""What the reproduction of one paper needs and nothing else does; the core imports none of it."""
