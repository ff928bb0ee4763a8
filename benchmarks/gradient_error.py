"""How far gradients of a pretraining step under autocast to bfloat16 are from those in float32.

Prints |g - g'| / |g| of each group of weights: for `tiny` with the exact softmax, and at the original's size with
random weights and the sampled softmax, from the same window.

    python benchmarks/gradient_error.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from speed_training import NUM_SENTENCES, ROWS, STEPS, language_model
from timing import print_table
from torch import Tensor, nn
from workload import some_sentences

from elmo_hf import ElmoForPreTraining, tiny_model, tiny_tokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.sampled_softmax import draw_candidates
from elmo_hf.language_model.streams import SentenceStream, window_arguments

GROUPS = {"token_encoder.highways": "highways", "token_encoder.projection": "highways", "token_encoder": "characters"}
GROUPS |= {"layers.0": "layer 1", "layers.1": "layer 2", "softmax": "softmax"}


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", type=Path)
    path = parser.parse_args().sentences
    tiny = tiny_model(ElmoForPreTraining)
    corpus = Corpus.from_sentences(some_sentences(path, NUM_SENTENCES), tiny_tokenizer())
    streams = (SentenceStream(corpus, ROWS, is_backward=is_backward).take(STEPS) for is_backward in (False, True))
    inputs = {name: values.long() for name, values in window_arguments(corpus, *streams).items()}
    compare("`tiny`", tiny, lambda: tiny(**inputs).loss)
    large, window = language_model(path, small=False)
    drawn = [draw_candidates(len(large.softmax.bias), large.config.num_softmax_samples) for _ in range(2)]
    compare("the original's size", large, lambda: large(**window, candidates=drawn).loss)


def compare(name: str, model: nn.Module, loss_of: Callable[[], Tensor]) -> None:
    """Prints the errors of all groups."""
    gradients = []
    for is_half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            loss = loss_of()
        loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    squares: dict[str, Tensor] = defaultdict(lambda: torch.zeros(2, dtype=torch.float64))
    for weight, exact in gradients[0].items():
        error = exact - gradients[1][weight]
        for group in ("all", next(group for part, group in GROUPS.items() if part in weight)):
            squares[group] += torch.stack([error, exact]).double().square().flatten(1).sum(dim=1)
    errors = [[group, f"{(error / exact).sqrt():.2%}"] for group, (error, exact) in squares.items()]
    print_table([name, "error"], errors)


if __name__ == "__main__":
    main()
