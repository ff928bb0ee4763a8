"""The model cards of the published checkpoints: a table of facts, and the command that writes the cards.

    python -m elmo_hf.conversion.published_cards model_cards

The facts are the authors' own, from the addresses in `page` and `source`; the cards also say what the authors leave
open. A test renders every card again and compares it with the file.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.model.modeling_elmo import ElmoModel
from elmo_hf.share.model_card import Facts, Licence, Score, render_card

from .published import PUBLISHED

WITH_SOFTMAX = "-lm"
PAGE = PUBLISHED["original"].source
PAPER = "https://aclanthology.org/N18-1202/"
UNRESTRICTED = Licence(
    "other",
    "The Allen Institute says of its ELMo models: “We don't impose any restrictions on our models”\n"
    "([allenai/allennlp#1462](https://github.com/allenai/allennlp/issues/1462), 18 July 2018). They come with no\n"
    "licence text; the code that trained them is under the Apache License 2.0.",
    other_name="no-restrictions",
    link="https://github.com/allenai/allennlp/issues/1462",
)
UNKNOWN = Licence("unknown", "The weights come without a licence. Ask their authors before you share them.")
GERMAN_PAGE = PUBLISHED["de"].source
PLUR = PUBLISHED["eu"].source
MANY_LANGUAGES = [each.language for name, each in PUBLISHED.items() if name.startswith("manylangs-")]
BILLION_WORDS = (
    "The [1 Billion Word Benchmark](http://www.statmt.org/lm-benchmark/): about 800 million words of news of 2011, in\n"
    "English, shuffled by sentence."
)
LM1B = ("billion-word-benchmark/lm1b",)
PORTUGUESE_EXAMPLE = ("A margem do rio .", "Sim .")
UFG = "the Federal University of Goiás (Quinta de Castro, da Silva Soares, Félix, Teixeira Sousa, da Silva Amaral)"
SIZES = {
    "small": {"cell_size": 1024, "projection_size": 128, "num_highway_layers": 1},
    "medium": {"cell_size": 2048, "projection_size": 256, "num_highway_layers": 1},
    "original": {"cell_size": 4096, "projection_size": 512, "num_highway_layers": 2},
}


@dataclass(frozen=True)
class PublishedCard:
    """One card.

    Attributes:
        folder: the folder that the card's snippet loads.
        facts: the facts that the authors published.
        model: the key of `PUBLISHED` that `--model` downloads; None if only `command` explains how to get it.
        size: a key of `SIZES`, or None if the authors do not say.
        command: the commands that make and check the folder.
    """

    folder: str
    facts: Facts
    model: str | None = None
    size: str | None = None
    command: str | None = None


def _downloaded(model: str, folder: str, facts: Facts, size: str | None = None) -> PublishedCard:
    return PublishedCard(folder, facts, model, size, f"elmo-hf convert --model {model} {folder} --check")


def _benchmarks(srl: str, parsing: str) -> tuple[Score, ...]:
    """The two columns of AllenNLP's page; its task models read no GloVe vectors."""
    return (
        Score("semantic role labelling with these vectors, F1", srl, PAGE),
        Score("constituency parsing with these vectors, F1", parsing, PAGE),
    )


PAPER_SCORES = (
    Score("perplexity of the language model, mean of both directions, held-out 1 Billion Word text", "39.7", PAPER),
    Score("SQuAD with these vectors, test F1", "85.8 (baseline 81.1)", PAPER),
    Score("SNLI, test accuracy", "88.7 ± 0.17 (88.0)", PAPER),
    Score("semantic role labelling, OntoNotes, test F1", "84.6 (81.4)", PAPER),
    Score("coreference, OntoNotes, test average F1", "70.4 (67.2)", PAPER),
    Score("named entities, CoNLL 2003, test F1", "92.22 ± 0.10 (90.15)", PAPER),
    Score("SST-5, test accuracy", "54.7 ± 0.5 (51.4)", PAPER),
)


def _billion_words(model: str, title: str, scores: tuple[Score, ...]) -> PublishedCard:
    """The card of an English model of the Allen Institute, trained on the 1 Billion Word Benchmark."""
    facts = Facts(
        title=title,
        languages=("en",),
        training_data=BILLION_WORDS,
        page=PAGE,
        datasets=LM1B,
        scores=scores,
        licence=UNRESTRICTED,
    )
    return _downloaded(model, f"elmo-{model}", facts, model)


def _portuguese(model: str, title: str, training_data: str, page: str = PAGE) -> PublishedCard:
    facts = Facts(
        title=title,
        languages=("pt",),
        training_data=training_data,
        page=page,
        example=PORTUGUESE_EXAMPLE,
        licence=UNKNOWN,
    )
    return _downloaded(model, f"elmo-{model}", facts)


CARDS = {
    "small": _billion_words("small", "the small English model of the Allen Institute", _benchmarks("83.62", "93.12")),
    "medium": _billion_words(
        "medium", "the medium English model of the Allen Institute", _benchmarks("84.04", "93.60")
    ),
    "original": _billion_words(
        "original", "the English model of the paper", _benchmarks("84.63", "93.85") + PAPER_SCORES
    ),
    "original-5.5B": _downloaded(
        "5.5B",
        "elmo-original-5.5B",
        Facts(
            title="the English model that the Allen Institute recommends, of the original's size and trained on more",
            languages=("en",),
            training_data=(
                "5.5 billion words of English: Wikipedia (1.9 billion) and all monolingual news of WMT 2008 to 2012\n"
                "(3.6 billion)."
            ),
            page=PAGE,
            scores=_benchmarks("84.93", "94.01"),
            licence=UNRESTRICTED,
        ),
        "original",
    ),
    "portuguese": _portuguese(
        "pt",
        f"the first Portuguese model of {UFG}, which flair loads",
        "Portuguese Wikipedia ([allenai/allennlp#2025](https://github.com/allenai/allennlp/issues/2025)).",
        PUBLISHED["pt"].source,
    ),
    "portuguese-wikipedia": _portuguese(
        "pt-wikipedia", f"the later Portuguese model of {UFG}, trained on Wikipedia", "Portuguese Wikipedia."
    ),
    "portuguese-brwac": _portuguese(
        "pt-brwac",
        f"the later Portuguese model of {UFG}, trained on brWaC",
        "brWaC, a corpus of Brazilian web pages.",
    ),
    "pubmed": _downloaded(
        "pubmed",
        "elmo-pubmed",
        Facts(
            title="the biomedical English model of Matthew Peters",
            languages=("en",),
            training_data=(
                "A random selection of PubMed abstracts, 797 million words\n"
                "([allenai/allennlp#4896](https://github.com/allenai/allennlp/issues/4896))."
            ),
            page=PAGE,
            example=("The cells express the receptor .", "No metastasis ."),
            licence=UNKNOWN,
        ),
        "original",
    ),
    "german": _downloaded(
        "de",
        "elmo-de",
        Facts(
            title="the German model of Philip May and T-Systems on site services",
            languages=("de",),
            training_data=(
                "German Wikipedia, its articles and the comments on them: 962,868,231 words\n"
                "([german-wikipedia-text-corpus]"
                "(https://github.com/t-systems-on-site-services-gmbh/german-wikipedia-text-corpus))."
            ),
            licence=Licence(
                "bsd-2-clause",
                f"BSD 2-Clause, as its [repository]({GERMAN_PAGE}) and\n"
                "[its author](https://github.com/allenai/bilm-tf/issues/209) say.",
            ),
            page=GERMAN_PAGE,
            scores=(
                Score(
                    "perplexity of the language model, held-out text of the same corpus, after 14 epochs",
                    "40.17",
                    GERMAN_PAGE,
                ),
            ),
            example=("Das Ufer des Flusses .", "Ja ."),
        ),
    ),
    "japanese": _downloaded(
        "ja",
        "elmo-ja",
        Facts(
            title="the Japanese model of Enkhbold Bataa and Joshua Wu, ExaWizards "
            "([paper](https://aclanthology.org/P19-1458/))",
            languages=("ja",),
            training_data="Japanese Wikipedia.",
            page=PAGE,
            words=(
                "Japanese has no blanks between words. Split the text with a morphological analyser and give the\n"
                "  words with `is_split_into_words=True`. The paper names the analyser that split the training text."
            ),
            example=("川 の 岸 。", "はい 。"),
            licence=UNKNOWN,
        ),
    ),
    "basque": _downloaded(
        "eu",
        "elmo-eu",
        Facts(
            title="the Basque model of Stefan Schweter",
            languages=("eu",),
            training_data="Basque Wikipedia and texts of OPUS and the Leipzig Corpora Collection, 72,683,662 words.",
            page=PLUR,
            scores=(
                Score("named entities, EIEC, F1, mean of three runs", "82.01", PLUR),
                Score(
                    "parts of speech, Universal Dependencies 1.2, accuracy, mean of three runs",
                    "97.35",
                    PLUR,
                ),
            ),
            words="The training text was split by Tensor2Tensor's simple tokenizer: runs of letters, runs of others.",
            example=("Ibaiaren ertza .", "Bai ."),
            licence=UNKNOWN,
        ),
    ),
    "tamil": _downloaded(
        "ta",
        "elmo-ta",
        Facts(
            title="the Tamil model of Stefan Schweter",
            languages=("ta",),
            training_data="Tamil Wikipedia and texts of OPUS and the Leipzig Corpora Collection, 21,581,878 words.",
            page=PLUR,
            words=(
                "A character of Tamil is three bytes of UTF-8, so a word of more than 16 characters is cut. The\n"
                "  training text was split by Tensor2Tensor's simple tokenizer."
            ),
            example=("வணக்கம் உலகம் .", "ஆம் ."),
            licence=UNKNOWN,
        ),
    ),
    "many-languages": PublishedCard(
        "elmo-en",
        Facts(
            title="one of ELMoForManyLangs' 44 models (Che et al. 2018); the numbers 136 to 179 of the archive are "
            "languages, 144 is English",
            languages=tuple(MANY_LANGUAGES),
            training_data=(
                "For each language 20 million words, drawn at random from the raw text of the CoNLL 2018 shared task\n"
                "(Wikipedia and Common Crawl)."
            ),
            licence=Licence(
                "mit",
                "MIT, as [its author](https://github.com/HIT-SCIR/ELMoForManyLangs/issues/64) and the repository say.",
            ),
            page=PUBLISHED["manylangs-en"].source,
            words="The training text was split by the shared task's tokenizer, UDPipe.",
            word_limit="48 characters (code points, not bytes)",
        ),
        command="elmo-hf convert --model manylangs-en elmo-en --check",
    ),
}


def facts_of(model: str) -> Facts:
    """The published facts about a checkpoint that `--model` downloads, with or without its softmax."""
    return next(card.facts for card in CARDS.values() if card.model == model.removesuffix(WITH_SOFTMAX))


def published_card(name: str) -> str:
    """The card of `CARDS[name]`, before any conversion."""
    card = CARDS[name]
    config = num_parameters = None
    if card.size is not None:
        config = ElmoConfig(**SIZES[card.size])
        with torch.device("meta"):
            model = ElmoModel(config)
        mixes = sum(parameter.numel() for parameter in model.scalar_mixes.parameters())
        num_parameters = model.num_parameters() - mixes - config.char_embedding_size  # the file has no padding vector
    return render_card(
        card.folder, config=config, num_parameters=num_parameters, facts=card.facts, command=card.command
    )


def write_cards(folder: Path) -> None:
    """Writes every card of `CARDS` to `folder`."""
    for name in CARDS:
        (folder / f"{name}.md").write_text(published_card(name), encoding="utf-8")


if __name__ == "__main__":
    write_cards(Path(sys.argv[1]))
