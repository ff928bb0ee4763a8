"""The workload: the original's sizes with random weights, and batches of real sentences.

Words are counted without `<S>` and `</S>`, as users count them; arithmetic is counted with them, because they are
computed like any word:

    biLM          2 L (2 . 4H P + H P) multiply-adds per word; for each direction and layer: x and h to the gates,
                  and the cell to h
    character CNN sum_f (C - width_f + 1) width_f E count_f + highways . 2 F^2 + F P multiply-adds per distinct word

Glossary: B batch, T words of the longest sentence, C characters per word, E character embedding, F filters in total,
P projection, H cell, L layers.
"""

import random
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer

# No two sizes are equal.
SMALL: dict[str, Any] = {
    "char_embedding_size": 5,
    "char_filters": [[1, 8], [2, 12]],
    "num_highway_layers": 1,
    "projection_size": 16,
    "cell_size": 24,
}
# With this factor random weights give cells and outputs about as large as a trained model's: standard deviations are
# about 0.5, and one cell in several thousand is clipped.
BILM_SCALE = 2.0

AnyModel = TypeVar("AnyModel", bound=nn.Module)


class Batch(NamedTuple):
    """A batch of sentences.

    Attributes:
        input_ids: `(B, T, C)`, boundaries included.
        attention_mask: `(B, T)`.
        num_words: count without boundaries.
    """

    input_ids: Tensor
    attention_mask: Tensor
    num_words: int

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Arguments of `ElmoModel.forward`."""
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}


def config_of(small: bool, **fields: Any) -> ElmoConfig:
    """The original's sizes, 93.6 million parameters, or tiny ones; without dropout, so that values are comparable."""
    dropouts = dict.fromkeys(("representation_dropout", "lm_dropout", "classifier_dropout"), 0.0)
    return ElmoConfig(**((SMALL if small else {}) | dropouts | fields))


def at_trained_scale(model: AnyModel) -> AnyModel:
    """Scales the random weights of every biLM in `model` until gates and clips act."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bilm.layers." in name:
                parameter.mul_(BILM_SCALE)
    return model


def random_model(small: bool, **fields: Any) -> ElmoModel:
    """An `ElmoModel` in evaluation mode, the same in every call."""
    torch.manual_seed(0)
    return at_trained_scale(ElmoModel(config_of(small, **fields))).eval()


def all_sentences(path: Path) -> list[list[str]]:
    """Sentences of a `.conllu` or `.jsonl` file, in order."""
    # Not on top, because `compare.py` runs this file with packages of other commits, where the module may be elsewhere.
    from elmo_hf.text.sentences import read_sentences

    return [each.split() if isinstance(each, str) else each for each in read_sentences(path)]


def some_sentences(path: Path, number: int) -> list[list[str]]:
    """Draws sentences of a `.conllu` or `.jsonl` file at random, the same ones in every call.

    Raises:
        ValueError: if the file has too few.
    """
    sentences = all_sentences(path)
    if len(sentences) < number:
        raise ValueError(f"{path} has {len(sentences)} sentences, and {number} are needed.")
    return random.Random(0).sample(sentences, number)


def batches_of(sentences: list[list[str]], size: int) -> list[Batch]:
    """Sentences in batches of `size`, in order."""
    batches = []
    for start in range(0, len(sentences), size):
        chosen = sentences[start : start + size]
        inputs = ElmoTokenizer()(chosen, is_split_into_words=True, padding=True, return_tensors="pt")
        batches.append(Batch(inputs["input_ids"], inputs["attention_mask"], sum(map(len, chosen))))
    return batches


def num_words(batches: list[Batch]) -> int:
    """The count of words in all batches, without boundaries."""
    return sum(batch.num_words for batch in batches)


def flops(config: ElmoConfig, batches: list[Batch]) -> int:
    """Additions and multiplications for the batches: the biLM's per word, the CNN's per distinct word of a batch."""
    positions = sum(int(batch.attention_mask.sum()) for batch in batches)
    distinct = sum(len(batch.input_ids[batch.attention_mask.bool()].unique(dim=0)) for batch in batches)
    size, width, filters = config.projection_size, config.cell_size, config.num_filters
    bilm = 2 * config.num_hidden_layers * (2 * 4 * width * size + width * size)
    convolutions = sum(
        (config.max_word_length - span + 1) * span * config.char_embedding_size * count
        for span, count in config.char_filters
    )
    characters = convolutions + config.num_highway_layers * 2 * filters**2 + filters * size
    return 2 * (positions * bilm + distinct * characters)
