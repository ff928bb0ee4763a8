"""Labels of other schemes as IOB2."""

import pytest

from elmo_hf.tasks.label_schemes import to_iob2

IOB2 = "B-PER I-PER O O B-PER B-PER B-LOC I-LOC I-LOC O B-LOC"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (IOB2, IOB2),
        ("I-PER I-PER O O I-PER B-PER I-LOC I-LOC I-LOC O I-LOC", IOB2),  # IOB1
        ("B-PER E-PER O O S-PER S-PER B-LOC I-LOC E-LOC O S-LOC", IOB2),  # BIOES
        ("B-PER L-PER O O U-PER U-PER B-LOC I-LOC L-LOC O U-LOC", IOB2),  # BILOU
        ("B-PER E-PER O O S-PER S-PER B-LOC M-LOC E-LOC O S-LOC", IOB2),  # BMES
        ("E-PER I-PER", "B-PER B-PER"),
        ("S-PER E-PER", "B-PER B-PER"),
        ("B-PER I-LOC E-LOC", "B-PER B-LOC I-LOC"),
        ("B-PER NOUN I-PER", "B-PER NOUN B-PER"),
        ("NN-P I- BI-x O", "NN-P B- BI-x O"),
        ("B-creative-work E-creative-work", "B-creative-work I-creative-work"),
        ("", ""),
    ],
)
def test_every_scheme_becomes_iob2(labels: str, expected: str) -> None:
    assert to_iob2(labels.split()) == expected.split()
