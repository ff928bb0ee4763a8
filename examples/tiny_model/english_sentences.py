"""Cuts a paragraph of English into sentences: after `.`, `!` or `?` before a capital, but not after abbreviations.

`J. Doe v. Roe Inc., 5 F. 2d 7 (1st Cir. 1990)` is one sentence.
"""

import re

SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z])")
# Words after which a full stop does not end a sentence.
ENDS_IN_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Messrs|Dr|Prof|St|Esq|Rev|Sen|Reps?|Gov|Capt|Col|Gen|Lieut|Lt|Sgt|Cpl|Maj|Adm|Hon|Mme|Mlle|Jr|Sr|"
    r"Inc|Corp|Co|Ltd|No|Vol|vol|Chap|viz|i\.e|e\.g|vs?|Cir|Ct|Supp|Sec|sec|Art|cf|Cf|Id|id|Fed|Dist|Ph|"
    r"Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|[A-Z])|\b[A-Z]\.[A-Z])\.$"
)


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, without the blanks around them."""
    sentences, begin = [], 0
    for match in SENTENCE_END.finditer(paragraph):
        if not ENDS_IN_ABBREVIATION.search(paragraph[begin : match.start()]):
            sentences.append(paragraph[begin : match.end()].strip())
            begin = match.end()
    return [*sentences, paragraph[begin:].strip()]
