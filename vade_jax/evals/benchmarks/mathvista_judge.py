"""What a language model is asked about a MathVista answer: to extract it, or whether it is right.

The worked examples are ours; the published ones are under a share-alike licence.
"""

from vade_jax import types
from vade_jax.evals.benchmarks import base

EXAMPLES = """\
Read a question, with its hint, and a model's response. Write the answer that the response gives, in
the form that the hint asks for, and nothing else. Do not solve the question yourself.

Hint: Answer with an integer.
Question: How many boats are in the harbour?

Two sailing boats and four rowing boats are tied up, so there are 6 boats altogether.

Extracted answer: 6

Hint: Answer with a number with one decimal.
Question: How long is the diagonal of the garden? (Unit: m)

The diagonal is the root of 6.25 + 36, which makes about 6.5 metres.

Extracted answer: 6.5

Hint: Answer with a number with two decimals.
Question: What share of the pie is blue?

Blue covers a little over a third; reading the legend it is 0.36 of the pie.

Extracted answer: 0.36

Hint: Answer with a list.
Question: In which two years did the river flood?

The bars pass the red line in 1988 and again in 1994.

Extracted answer: [1988, 1994]

Hint: Answer with the letter of an option.
Question: Which shelf holds the most jars?
Choices:
(A) top
(B) middle
(C) bottom

I count nine jars on the bottom shelf and fewer on the others, so the third option it is.

Extracted answer: C"""

_BINARY = """\
Compare a model's answer with the reference answer to a question. The prediction is correct if its
final answer means the same as the reference: the letter or the text of the same option, the same
number in any notation, with or without its unit. Do not solve the question yourself. Reply with one
word, Correct or Incorrect.

Question: {query}
Reference answer: {answer}
Prediction: {text}
Verdict:"""


def extraction_prompt(text: str, item: types.Item) -> str:
    """Returns five worked examples, the query and the response."""
    return f"{EXAMPLES}\n\n{item.metadata['query']}\n\n{text}\n\nExtracted answer: "


def read_extraction(reply: str) -> str | None:
    """Returns the reply without a repeated label, None if it is empty."""
    return reply.split("Extracted answer:")[-1].strip() or None


def binary_prompt(text: str, item: types.Item) -> str:
    """Returns the prompt that asks whether a whole response is right."""
    return _BINARY.format(query=item.metadata["query"], answer=item.answer, text=text)


def read_binary(reply: str) -> bool | None:
    """Returns the verdict in one word, None for any other reply."""
    word = reply.split("Verdict:")[-1].strip().strip(".*").lower()
    return {"correct": True, "incorrect": False}.get(word)


EXTRACTION = base.Judge(
    extraction_prompt=extraction_prompt,
    read_extraction=read_extraction,
    max_tokens=1024,
)
BINARY = base.Judge(judge_prompt=binary_prompt, read_judgement=read_binary)
