"""The CRF against enumeration of every label sequence, and its scheme of labels."""

import itertools

import pytest
import torch
from torch import Tensor

from elmo_hf.model.heads_elmo import LinearChainCRF, may_follow
from elmo_hf.tasks.label_schemes import to_iob2

PLAIN = ["red", "green", "blue"]
IOB = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
LENGTHS = [4, 1, 0, 3]


def random_crf(labels: list[str]) -> LinearChainCRF:
    crf = LinearChainCRF(labels).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def random_texts(labels: list[str], lengths: list[int] = LENGTHS) -> tuple[Tensor, Tensor]:
    """Emissions (N, W, K), also where no word stands, and the mask (N, W)."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return torch.randn(len(lengths), max(lengths), len(labels), dtype=torch.float64), mask


def all_scores(crf: LinearChainCRF, emissions: Tensor, length: int) -> dict[tuple[int, ...], Tensor]:
    """The score of every legal label sequence of one text, from the definition."""
    scores = {}
    for labels in itertools.product(range(len(crf.labels)), repeat=length):
        names = ["O", *(crf.labels[label] for label in labels)]
        if not all(may_follow(first, second, crf.labels) for first, second in itertools.pairwise(names)):
            continue
        score = crf.start[labels[0]] + crf.end[labels[-1]]
        score = score + sum(emissions[place, label] for place, label in enumerate(labels))
        scores[labels] = score + sum(crf.transitions[first, second] for first, second in itertools.pairwise(labels))
    return scores


def log_sum(scores: list[Tensor]) -> Tensor:
    return torch.stack(scores).logsumexp(dim=0)


@pytest.mark.parametrize("labels", [PLAIN, IOB], ids=["plain", "IOB2"])
def test_decoding_finds_the_best_of_all_sequences_and_marginals_are_theirs(labels: list[str]) -> None:
    crf = random_crf(labels)
    for _ in range(5):
        emissions, mask = random_texts(labels)
        decoded, marginals = crf.decode(emissions, mask), crf.log_marginals(emissions, mask).exp()
        for text, length in enumerate(LENGTHS):
            scores = all_scores(crf, emissions[text], length) if length else {}
            best = max(scores, key=lambda key: scores[key].item(), default=())
            assert tuple(decoded[text, :length].tolist()) == best
            expected = torch.zeros(length, len(labels), dtype=torch.float64)
            for key, score in scores.items():
                expected[range(length), key] += (score - log_sum(list(scores.values()))).exp()
            torch.testing.assert_close(marginals[text, :length], expected)
            assert torch.equal(marginals[text, :length] == 0, expected == 0)  # of what may not be, exactly


def test_the_loss_and_its_gradients_are_those_of_all_sequences_that_agree_with_the_labels() -> None:
    crf = random_crf(IOB)
    emissions, mask = random_texts(IOB)
    emissions.requires_grad_()
    # Unknown labels in the middle, at the start and of a whole text; what stands after a text does not count.
    # An I- may follow an unknown label: that may be the B- that it needs.
    labels = torch.tensor([[-100, 2, -100, 0], [-100, 1, 1, 1], [2, 2, 2, 2], [3, -100, 4, 2]])
    losses = []
    for text, length in enumerate(LENGTHS):
        scores = all_scores(crf, emissions[text], length) if length else {}
        wanted = labels[text, :length].tolist()
        agreeing = [
            score
            for key, score in scores.items()
            if all(want in (-100, label) for want, label in zip(wanted, key, strict=True))
        ]
        if scores:
            losses.append(log_sum(list(scores.values())) - log_sum(agreeing))
    expected, actual = torch.stack(losses).sum(), crf.loss(emissions, labels, mask)
    torch.testing.assert_close(actual, expected)
    variables = (emissions, crf.transitions, crf.start, crf.end)
    torch.testing.assert_close(torch.autograd.grad(actual, variables), torch.autograd.grad(expected, variables))
    # Numbers of half precision are computed with in float32.
    half, rounded = crf.bfloat16().loss(emissions.bfloat16(), labels, mask), emissions.bfloat16().float()
    torch.testing.assert_close(half, crf.float().loss(rounded, labels, mask), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("first", "second", "labels", "legal"),
    [
        ("O", "I-PER", IOB, False),
        ("B-LOC", "I-PER", IOB, False),
        ("I-LOC", "I-PER", IOB, False),
        ("B-PER", "I-PER", IOB, True),
        ("I-PER", "I-PER", IOB, True),
        ("I-PER", "B-PER", IOB, True),
        ("O", "I-PER", ["O", "I-PER"], True),
        ("O", "I", ["O", "B", "I"], True),
        ("red", "blue", PLAIN, True),
        ("B-a-b", "I-a-b", ["B-a-b", "I-a-b", "B-a"], True),
        ("B-a", "I-a-b", ["B-a-b", "I-a-b", "B-a"], False),
    ],
)
def test_what_may_follow_what_is_the_iob2_scheme(first: str, second: str, labels: list[str], legal: bool) -> None:
    assert may_follow(first, second, labels) == legal


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
        ("NN-P I- BI-x SU-x B O", "NN-P B- BI-x SU-x B O"),
        ("B-creative-work E-creative-work", "B-creative-work I-creative-work"),
        ("", ""),
    ],
)
def test_every_scheme_becomes_iob2(labels: str, expected: str) -> None:
    assert to_iob2(labels.split()) == expected.split()
