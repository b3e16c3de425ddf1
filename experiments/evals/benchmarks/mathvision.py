r"""MathVision: 3,040 competition problems with pictures, scored by rules.

The official scorer has no judge: it looks for a box or "the answer is", strips LaTeX, and compares
texts, then values at two decimals. Its quirks are kept, since published numbers have them: "7cm",
"7°", "B. 2" and \frac12 are wrong, 60.004 is 60. `LMMS_EVAL` is the scorer of a public harness in whose
release roots and \pi have no value, so such answers never match.
"""

import dataclasses
import functools
import re

from experiments.evals.benchmarks import base, latex
from vade_jax import types

# Fixed by the benchmark.
LMMS_INSTRUCTION = 'Please solve the problem step by step and put your answer in one "\\boxed{}".'
INSTRUCTION = (
    f"{LMMS_INSTRUCTION} "
    'If it is a multiple choice question, only one letter is allowed in the "\\boxed{}".'
)
FORMS = (("id", "question", "options", "image", "answer", "level", "subject"),)
# What an answer without a box follows, in the official order: the last flag that is there wins.
_FLAGS = tuple(
    flag.replace("the", word)
    for flag in (
        *("the final answer is", "the answer is"),
        *("the correct answer is", "the answer should be"),
    )
    for word in ("the", "The")
)
# What the official scorer replaces, in its order, which counts: a later pair sees what an earlier left.
_REPLACED = (
    *((" ", ""), ("\\,", ""), ("∞", "\\infty"), ("+\\infty", "\\infty")),
    *(("\\\\", "\\"), ("\n", ""), ("\\text", ""), ("\\mbox", "")),
    *(("\\left", ""), ("\\right", ""), ("^{\\circ}", ""), ("^\\circ", "")),
    *(("{m}^3", ""), ("m^3", ""), ("{units}", ""), ("units", "")),
    *(("{km}", ""), ("km", ""), ("\\!", "")),
    *(("tfrac", "frac"), ("dfrac", "frac"), ("\\$", ""), ("$", "")),
    *(("\\%", ""), ("{.", "{0.")),
)


def _item(row: base.FileRow) -> types.Item:
    options, answer = row.texts("options"), row.text("answer")
    if options and answer not in base.letters(options):
        raise row.bad("answer", f"{answer!r} is not a letter of {len(options)} options")
    return types.Item(
        uid=f"mathvision:{row.text('id')}",
        question=row.text("question"),
        images=(row.image("decoded_image", "image"),),
        answer=answer,
        kind="choice" if options else "text",
        metadata={
            "options": list(options),
            "level": row.text("level"),
            "subject": row.text("subject"),
        },
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the official prompt, which asks for reasoning and a box in both profiles."""
    options = item.metadata["options"]
    shown = options == base.letters(options)  # the picture says what they stand for
    listed = "" if shown else base.lines(options, "({}) {}")
    return f"{INSTRUCTION}\n{item.question}{listed}\n"


def lmms_prompt(item: types.Item, profile: str) -> str:
    """Returns the prompt of the public harness: its instruction is glued to the question."""
    listed = base.lines(item.metadata["options"], "{}. {}").lstrip("\n")
    choices = f"\nChoices: {listed}" if listed else ""
    return f"{LMMS_INSTRUCTION}{item.question}{choices}"


def extract(text: str, item: types.Item | None = None, profile: str = "paper") -> str:
    """Returns the answer in `text`, lower case and stripped, by the official steps in order."""
    text = _shortcut(text.strip())
    if "oxed{" in text:
        if text.count("oxed{") > 1:  # the last box counts
            text = "\\boxed{" + text.split("oxed{")[-1]
    else:
        for flag in _FLAGS:
            if flag in text:
                text = text.split(flag)[-1].strip().split("\n")[0].split(". ")[0]
    text = _strip(_inside(text.lower().replace("{}", "")))
    text = re.sub(r"\(([a-e])\)", r"\1", text)
    text = re.sub(r"\{([a-e])\}", r"\1", text)
    return text.rstrip(".").lstrip(":").strip()


def _shortcut(text: str) -> str:
    """Returns a lone letter or a number at the very end (or start), else `text`."""
    for c in "ABCDE":
        ends, starts = (f" {c}.", f" ({c})."), (f"{c}\n", f"({c})\n", f"({c}) {c}\n")
        if text.endswith(ends) or text.startswith(starts):
            text = c
    tail = text.split("is ")[-1].rstrip(".")
    try:
        float(tail)
    except ValueError:
        return text
    return tail


def _inside(text: str) -> str:
    """Returns the part after the last equals sign of the box, or of the full text without a box."""
    match = re.search(r"oxed\{(.*)\}", text, re.DOTALL)
    text = match[1] if match else text
    if "}" in text and "{" not in text.split("}")[0]:  # a brace too many
        text = text.split("}")[0]
    return text.split("=")[-1].split("\\approx")[-1]


def _strip(text: str) -> str:
    """Returns the answer without spaces, units and purely visual LaTeX, by the official steps."""
    for old, new in _REPLACED:
        text = text.replace(old, new)
    text = f"0{text}" if text.startswith(".") else text
    if "sqrt" in text:  # only then are bare fractions given braces
        text = re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text)
        text = re.sub(r"\\frac([^{])([^{])", r"\\frac{\1}{\2}", text)
        text = re.sub(r"\\frac([^{])\{", r"\\frac{\1}{", text)
    if text == "0.5":  # the official scorer knows this one decimal
        return "\\frac{1}{2}"
    return re.sub(r"^(0|-?[1-9]\d*)/(0|-?[1-9]\d*)$", r"\\frac{\1}{\2}", text)


def score(
    extracted: str, item: types.Item, profile: str = "paper", *, functions: bool = True
) -> bool:
    """Returns whether the answer equals the gold letter or number, or the gold option's text."""
    options = item.metadata["options"]
    golds = [item.answer] + ([options[ord(item.answer) - ord("A")]] if options else [])
    return any(equal(gold, extracted, functions=functions) for gold in golds)


def equal(gold: str, answer: str, *, functions: bool = True) -> bool:
    """Returns whether two answers are the same text, list (as text) or value at two decimals."""
    gold, answer = gold.lower(), answer.lower()
    if not gold.strip() or not answer.strip():
        return False
    if gold.strip() == answer.strip():
        return True
    gold, answer = (_evaluate_list(text, functions) for text in (gold, answer))
    if gold == answer:
        return True
    x, y = (latex.value(text, functions=functions) for text in (gold, answer))
    return x is not None and y is not None and round(x, 2) == round(y, 2)


def _evaluate_list(text: str, functions: bool) -> str:
    """Returns "(a,b)" or "[a,b]" with values for elements, `text` if one has none."""
    parts = text[1:-1].split(",")
    if text[:1] + text[-1:] not in ("()", "[]") or len(parts) < 2:
        return text
    written = []
    for part in parts:
        if "infty" not in part and part not in ("a", "-a"):
            number = latex.value(part, functions=functions)
            if number is None:
                return text
            part = str(round(number, 2))
        written.append(part)
    return f"{text[0]}{','.join(written)}{text[-1]}"


def groups(item: types.Item) -> base.Groups:
    """Returns level, subject and both together."""
    level, subject = item.metadata["level"], item.metadata["subject"]
    return {"level": (level,), "subject": (subject,), "subject, level": (f"{subject}, {level}",)}


BENCHMARK = base.Benchmark(
    name="mathvision",
    title="MathVision",
    num_items=3040,
    # A problem's pictures are merged to one in the data.
    read=functools.partial(base.read_items, forms=FORMS, build=_item),
    prompt=prompt,
    extract=extract,
    score=score,
    groups=groups,
)
LMMS_EVAL = dataclasses.replace(
    BENCHMARK,
    name="mathvision_lmms_eval",
    prompt=lmms_prompt,
    score=functools.partial(score, functions=False),
)
