r"""What a language model is asked about a MathVision answer that the rules do not find right."""

from vade_jax import types
from vade_jax.evals.benchmarks import base, latex

_NEAR = 1e-6
_TASK = """\
A student answered a mathematics question. Copy out the student's final answer and nothing else: a
letter if the question has options, else a number or expression. Write null if there is none. Do not
solve the question, and do not correct the student.

Question: How many legs do three cats have?
Student: Each cat has four, so I multiply and get twelve legs.
Final answer: 12

Question: Which solid has no flat face?
Options:
(A) cube
(B) cone
(C) sphere
Student: Cubes and cones have flat faces. It must be the sphere.
Final answer: C

Question: What is half of the marked angle?
Student: The mark is hard to read in this picture, I would need a larger one.
Final answer: null

Question: {question}{options}
Student: {text}
Final answer:"""


def extraction_prompt(text: str, item: types.Item) -> str:
    """Returns the prompt that asks for the final answer in `text`."""
    options = base.lines(item.metadata["options"], "({}) {}")
    options = f"\nOptions:{options}" if options else ""
    return _TASK.format(question=item.question, options=options, text=text)


def read_extraction(reply: str) -> str | None:
    """Returns the answer without label and parentheses, None if the reply is empty."""
    return reply.split("Final answer:")[-1].strip().strip("()").strip() or None


def close(gold: str, given: str) -> bool:
    """Returns whether both are numbers that differ by less than a millionth."""
    values = [latex.value(text.lower()) for text in (gold, given)]
    return None not in values and abs(values[0] - values[1]) < _NEAR


JUDGE = base.Judge(extraction_prompt=extraction_prompt, read_extraction=read_extraction)
