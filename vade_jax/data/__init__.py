"""From sources of questions to arrays that the model reads."""
