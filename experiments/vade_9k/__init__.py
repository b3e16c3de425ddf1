"""The paper's training set (Table 3 of arXiv 2511.18902): 9,471 questions of eleven published data sets.

    settings   what is taken of which files: `configs/vade_9k.py` is made from it
    published  the files as they are published, row by row, and their forms
    texts      from the texts of a row to a question with one gold that can be verified
    draw       so many of each data set, in a seeded order, without duplicates; train and validation
    build      all of it into a directory that a run reads, with a report of every reject
    audit      which of the questions a benchmark asks too

How the paper chose its rows is not known; here it is a seeded order. The same files and seed give the
same bytes.
"""
