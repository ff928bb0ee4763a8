"""How far apart the vectors of a text's words are from the zero state and from a warm state, by word and by layer.

A sentence is read after the k sentences before it, the first of them from the zero state; k = 0 is the zero state
itself. The reference, the warm state, is k = 16. `elsewhere` is a warm state of another place of the text.

    distance = |x - y| / |y|    x, y (P) one direction's half of a layer's vector; y with the warm state

A direction forgets its first state while it reads, so words are counted from the one that it reads first: the forward
half from the first word, the backward half from the last. Each figure is the mean over sentences and directions.

    python benchmarks/cold_start.py en_ewt-ud-dev.conllu.gz tiny MODEL
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from timing import print_table
from torch import Tensor

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.text.sentences import read_sentences

WARM, KS = 16, (0, 1, 2, 4, 8)
WORDS = (1, 2, 3, 5, 10, 20)


@torch.inference_mode()
def first_words(model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[list[str]]], shift: int = 0) -> Tensor:
    """What each direction reads first of the last sentence of each text: `(L, B, D, words, P)`.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        texts: B texts of equally many sentences, which are read one after the other with the state carried.
        shift: the last sentence of each text has the state of the text this many rows before.
    """
    state = None
    for sentences in zip(*(text[:-1] for text in texts), strict=True):
        inputs = tokenizer(list(sentences), is_split_into_words=True, padding=True, return_tensors="pt")
        state = model(**inputs, state=state).state
    if state is not None:
        state = type(state)(*(tensor.roll(shift, dims=1) for tensor in state))
    inputs = tokenizer([text[-1] for text in texts], is_split_into_words=True, padding=True, return_tensors="pt")
    layers = torch.stack(model(**inputs, state=state, output_hidden_states=True).hidden_states[1:])
    is_word = inputs["attention_mask"].bool() & ~model.boundaries(inputs["input_ids"])
    places, rows = torch.tensor(WORDS) - 1, []
    for row, mask in enumerate(is_word):
        forward, *backward = layers[:, row, mask].unflatten(-1, (-1, model.config.projection_size)).unbind(2)
        in_order = [forward, *(half.flip(1) for half in backward)]
        rows.append(torch.stack([half[:, places] for half in in_order], dim=1))
    return torch.stack(rows, dim=1)


def main(
    corpus: Annotated[Path, typer.Argument(help="A running text: CoNLL-U, or a line a sentence, split into words.")],
    models: Annotated[list[str], typer.Argument(help="Folders, or tiny.")],
    count: Annotated[int, typer.Option(help="How many sentences, spread evenly over the text.")] = 128,
) -> None:
    """Print a table for each model: the distance in percent, and the cosine, by layer, k and word."""
    read = (line.split() if isinstance(line, str) else list(line) for line in read_sentences(corpus))
    sentences = [words for words in read if words]
    ends = [end for end in range(WARM, len(sentences)) if len(sentences[end]) >= max(WORDS)]
    ends = ends[:: max(1, len(ends) // count)][:count]
    for name in models:
        model, tokenizer = load_complete(name), load_tokenizer(name)
        warm_texts = [sentences[end - WARM : end + 1] for end in ends]
        warm = first_words(model, tokenizer, warm_texts)
        vectors_of = {}
        for k in KS:
            vectors_of[f"after {k}"] = first_words(model, tokenizer, [sentences[end - k : end + 1] for end in ends])
        vectors_of["elsewhere"] = first_words(model, tokenizer, warm_texts, shift=1)
        rows = []
        for layer, right in enumerate(warm):
            for state, vectors in vectors_of.items():
                distances = (vectors[layer] - right).norm(dim=-1) / right.norm(dim=-1)
                cosines = torch.cosine_similarity(vectors[layer], right, dim=-1)
                by_word = zip(distances.mean(dim=(0, 1)).tolist(), cosines.mean(dim=(0, 1)).tolist(), strict=True)
                cells = [f"{100 * distance:.2f}, {cosine:.4f}" for distance, cosine in by_word]
                rows.append([f"layer {layer + 1}, {state}", *cells])
        print(f"\n{name}, {len(ends)} sentences")
        print_table(["state", *(f"word {word}" for word in WORDS)], rows)


if __name__ == "__main__":
    typer.run(main)
