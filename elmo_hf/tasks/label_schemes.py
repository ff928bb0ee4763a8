"""Labels of entities as IOB2, the scheme of the CRF.

word        Ada    Lovelace  wrote  to  Mary   Bob
IOB2        B-PER  I-PER     O      O   B-PER  B-PER
IOB1        I-PER  I-PER     O      O   I-PER  B-PER    B- only where an entity follows one of its kind
BIOES       B-PER  E-PER     O      O   S-PER  S-PER    E- ends an entity, S- is one of a single word
BILOU       B-PER  L-PER     O      O   U-PER  U-PER    other letters for E- and S-
"""

from collections.abc import Sequence

# Prefixes by what they say of the word in its entity.
BEGINNINGS = "BSU"
INNER = "IM"
ENDS = "EL"
SINGLE = "SU"


def to_iob2(labels: Sequence[str]) -> list[str]:
    """Converts the labels of a text from IOB1, IOB2, BIOES (BMES) or BILOU; others, such as `O`, stay as they are.

    An entity that lacks its beginning gets one.
    """
    converted: list[str] = []
    open_kind: str | None = None  # of the entity that the next word may continue
    for label in labels:
        prefix, dash, kind = label.partition("-")
        is_of_entity = dash == "-" and len(prefix) == 1 and prefix in BEGINNINGS + INNER + ENDS
        if not is_of_entity:
            converted.append(label)
            open_kind = None
            continue
        begins = prefix in BEGINNINGS or kind != open_kind
        converted.append(f"B-{kind}" if begins else f"I-{kind}")
        open_kind = None if prefix in SINGLE + ENDS else kind
    return converted
