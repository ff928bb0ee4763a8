"""The training groups of `speed.py`: a head on the frozen biLM, fine-tuning everything, and pretraining."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from allennlp_loop import LoopElmo, LoopLanguageModels
from timing import Rounds, check_equal, print_table, timed
from torch import Tensor, nn
from workload import SMALL, at_trained_scale, batches_of, config_of, random_model, some_sentences

from elmo_hf import ElmoForPreTraining, ElmoForTokenClassification
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.sampled_softmax import Candidates, draw_candidates
from elmo_hf.language_model.streams import SentenceStream, window_arguments
from elmo_hf.training.run import new_language_model

BATCH_SIZE, NUM_LABELS = 32, 17
# For pretraining, with bilm-tf's optimiser.
ROWS, STEPS, NUM_SENTENCES = 16, 20, 400
SOFTMAX_WORDS, SOFTMAX_SAMPLES = 50_000, 8192
LEARNING_RATE, ADAGRAD_START, LARGEST_NORM = 0.2, 1.0, 10.0


def frozen(sentences: Path, rounds: int, small: bool) -> None:
    """A training step of a labeller with frozen biLM, and its inference."""
    (batch,) = batches_of(some_sentences(sentences, BATCH_SIZE), BATCH_SIZE)
    torch.manual_seed(0)
    labeller = at_trained_scale(ElmoForTokenClassification(config_of(small, freeze_bilm=True, num_labels=NUM_LABELS)))
    inputs = batch.inputs | {"labels": batch.attention_mask.cumsum(dim=1) % NUM_LABELS}
    optimizer = torch.optim.SGD([part for part in labeller.parameters() if part.requires_grad], lr=0.0)

    @torch.no_grad()
    def infer() -> Tensor:
        return labeller.eval()(**inputs).loss

    def train() -> Tensor:
        loss = labeller.train()(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    check_equal("the loss in training", train(), infer())
    turns = Rounds({"infer": timed(infer), "train": timed(train)}, rounds)
    print_table(
        [f"labeller, biLM frozen, batch {BATCH_SIZE}", "words/s", "times the seconds of inference"],
        [
            ["inference", f"{batch.num_words / turns.median('infer'):,.0f}", "1.00"],
            [
                "training step",
                f"{batch.num_words / turns.median('train'):,.0f}",
                f"{turns.ratio('train', 'infer'):.3f}",
            ],
        ],
    )


def fine_tuning(sentences: Path, rounds: int, small: bool) -> None:
    """Forward and backward pass through the whole model, ours and the loop's."""
    (batch,) = batches_of(some_sentences(sentences, BATCH_SIZE), BATCH_SIZE)
    model = random_model(small).train()
    loop = LoopElmo(model)
    weight = torch.randn(*batch.attention_mask.shape, model.config.hidden_size)

    def ours() -> Tensor:
        model.zero_grad()
        return backward(model(**batch.inputs).last_hidden_state)

    def theirs() -> Tensor:
        loop.zero_grad()
        return backward(loop(batch.input_ids).mix)

    def backward(mix: Tensor) -> Tensor:
        loss = (mix * weight).sum()
        loss.backward()
        return loss.detach()

    check_equal("the loop's loss", theirs(), ours())
    check_equal(
        "the loop's gradient",
        loop.bilm.backward_layers[0].state_linear.weight.grad,
        model.bilm.layers[0].backward_lstm.recurrent_linear.weight.grad,
    )
    turns = Rounds({"ours": timed(ours), "loop": timed(theirs)}, rounds)
    print_table(
        [f"forward and backward, everything learns, batch {BATCH_SIZE}", "words/s", "times the loop"],
        [
            ["ours", f"{batch.num_words / turns.median('ours'):,.0f}", f"{turns.ratio('loop', 'ours'):.2f}"],
            ["AllenNLP-style loop", f"{batch.num_words / turns.median('loop'):,.0f}", "1.00"],
        ],
    )


def pretraining(sentences: Path, rounds: int, small: bool) -> None:
    """A whole step of bilm-tf's training: sampled softmax, clipped norm, Adagrad; a word is a position in a row."""
    model, window = language_model(sentences, small)
    loop = LoopLanguageModels(model)

    with torch.no_grad():
        drawn = draw(model)
        check_equal("the loop's loss", loop(**window, candidates=drawn), model(**window, candidates=drawn).loss)

    def loss() -> Tensor:
        return model(**window, candidates=draw(model)).loss

    def loss_in_bfloat16() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss()

    contestants = {
        "ours": step_of(model, loss),
        "ours, autocast to bfloat16": step_of(model, loss_in_bfloat16),
        "AllenNLP-style loop": step_of(loop, lambda: loop(**window, candidates=draw(model))),
    }
    turns = Rounds({name: timed(step) for name, step in contestants.items()}, rounds)
    rows = [
        [name, f"{ROWS * STEPS / turns.median(name):,.0f}", f"{turns.ratio('AllenNLP-style loop', name):.2f}"]
        for name in contestants
    ]
    print_table([f"pretraining step, {ROWS} rows of {STEPS}", "words/s", "times the loop"], rows)


def draw(model: ElmoForPreTraining) -> tuple[Candidates, Candidates]:
    """Words for the sampled softmax of both directions."""
    sizes = len(model.softmax.bias), model.config.num_softmax_samples
    return draw_candidates(*sizes), draw_candidates(*sizes)


def step_of(parts: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A step of bilm-tf's optimiser."""
    optimizer = torch.optim.Adagrad(
        parts.parameters(), LEARNING_RATE, initial_accumulator_value=ADAGRAD_START, fused=True
    )

    def step() -> None:
        (loss() * STEPS).backward()
        nn.utils.clip_grad_norm_(parts.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad()

    return step


def language_model(sentences: Path, small: bool) -> tuple[ElmoForPreTraining, dict[str, Tensor]]:
    """The language models with a sampled softmax, and a window of streams."""
    text = some_sentences(sentences, NUM_SENTENCES)
    words = ["<S>", "</S>", "<UNK>", *dict.fromkeys(word for sentence in text for word in sentence)]
    words += [f"{number}-th word" for number in range(SOFTMAX_WORDS if not small else 0)]
    fields = (SMALL | {"num_softmax_samples": 12}) if small else {"num_softmax_samples": SOFTMAX_SAMPLES}
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocabulary.txt"
        vocabulary.write_text("".join(f"{word}\n" for word in words[:SOFTMAX_WORDS]), encoding="utf-8")
        torch.manual_seed(0)
        model, tokenizer = new_language_model(vocabulary, **fields, softmax="sampled", lm_dropout=0.0)
        corpus = Corpus.from_sentences(text, tokenizer)
    forward, backward = (
        SentenceStream(corpus, ROWS, is_backward=is_backward).take(STEPS) for is_backward in (False, True)
    )
    window = {name: values.long() for name, values in window_arguments(corpus, forward, backward).items()}
    return at_trained_scale(model).train(), window
