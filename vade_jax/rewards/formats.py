"""Whether an answer has the asked form, apart from being right."""

from vade_jax.rewards import answers

_END = " \n\t.$\\)]"  # what may follow the box: a full stop, the end of a formula


def boxed(text: str) -> bool:
    r"""Returns whether exactly one \boxed{} is there, and nothing but punctuation behind it."""
    found = answers.boxes(text)
    if len(found) != 1 or text.count("\\boxed") != 1:
        return False
    _, end, content = found[0]
    return bool(content.strip()) and not text[end:].strip(_END)


def think_boxed(text: str) -> bool:
    r"""Returns whether `text` is <think>reasoning</think> and then one \boxed{} at the end."""
    if text.count("<think>") != 1 or text.count("</think>") != 1:
        return False
    reasoning, answer = text.split("</think>")
    return reasoning.lstrip().startswith("<think>") and boxed(answer)


FORMATS = {"boxed": boxed, "think_boxed": think_boxed}
