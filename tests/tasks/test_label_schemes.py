"""Labels of other schemes as IOB2."""

import random

import pytest

from elmo_hf.tasks.label_schemes import to_iob2

IOB2 = "B-PER I-PER O O B-PER B-PER B-LOC I-LOC I-LOC O B-LOC"


@pytest.mark.parametrize(
    "labels",
    [
        IOB2,
        "I-PER I-PER O O I-PER B-PER I-LOC I-LOC I-LOC O I-LOC",
        "B-PER E-PER O O S-PER S-PER B-LOC I-LOC E-LOC O S-LOC",
        "B-PER L-PER O O U-PER U-PER B-LOC I-LOC L-LOC O U-LOC",
        "B-PER E-PER O O S-PER S-PER B-LOC M-LOC E-LOC O S-LOC",
    ],
    ids=["IOB2", "IOB1", "BIOES", "BILOU", "BMES"],
)
def test_every_scheme_becomes_iob2(labels: str) -> None:
    assert to_iob2(labels.split()) == IOB2.split()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("E-PER I-PER", "B-PER B-PER"),
        ("S-PER E-PER", "B-PER B-PER"),
        ("B-PER I-LOC E-LOC", "B-PER B-LOC I-LOC"),
        ("B-PER NOUN I-PER", "B-PER NOUN B-PER"),
        ("NN-P I- BI-x O", "NN-P B- BI-x O"),
        ("B-creative-work E-creative-work", "B-creative-work I-creative-work"),
        ("", ""),
    ],
    ids=str,
)
def test_odd_labels(labels: str, expected: str) -> None:
    assert to_iob2(labels.split()) == expected.split()


def spans(labels: list[str]) -> list[tuple[str, int, int]]:
    """Entities of IOB2 labels: kind, first word, end."""
    found: list[tuple[str, int, int]] = []
    for place, label in enumerate(labels):
        prefix, _, kind = label.partition("-")
        if prefix == "B":
            found.append((kind, place, place + 1))
        elif prefix == "I":
            found[-1] = (kind, found[-1][1], place + 1)
    return found


def test_entities_of_random_texts_stay_the_same() -> None:
    generator = random.Random(0)
    for _ in range(50):
        iob1: list[str] = []
        bioes: list[str] = []
        expected: list[tuple[str, int, int]] = []
        for _ in range(8):
            kind, size = generator.choice(["PER", "LOC", ""]), generator.randint(1, 3)
            if not kind:
                iob1, bioes = [*iob1, "O"], [*bioes, "O"]
                continue
            follows = bool(expected) and expected[-1][0] == kind and expected[-1][2] == len(iob1)
            expected.append((kind, len(iob1), len(iob1) + size))
            iob1 += [f"{'B' if follows else 'I'}-{kind}", *[f"I-{kind}"] * (size - 1)]
            parts = ["S"] if size == 1 else ["B", *"I" * (size - 2), "E"]
            bioes += [f"{part}-{kind}" for part in parts]
        assert spans(to_iob2(iob1)) == spans(to_iob2(bioes)) == expected
