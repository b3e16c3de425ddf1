"""The paper's training set (Table 3 of arXiv 2511.18902): 9,471 questions of eleven published data sets."""
