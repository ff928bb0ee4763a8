"""The README.md of a model folder, rendered by `huggingface_hub` from `model_cards/template.md`.

A card combines the architecture, from the config; the facts that the authors of the weights published (`Facts`); the
conversion of a checkpoint (`Conversion`); and the training of a model (transformers' `TrainingSummary`). Unknown parts
have no section, and a card without facts lists what to add. The template escapes every text from outside this package.
`saved_card.py` changes existing cards.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from transformers.modelcard import TrainingSummary

from ..heads import FEATURE_EXTRACTION, HEADS
from ..model.configuration_elmo import ELMO_HF, ElmoConfig
from ..text.escapes import code_span, markdown, printable, string_literal
from .facts_files import TEMPLATES, facts_file

ADDRESS = re.compile(r"https?://[^\s<>\"|]+")
TAGS = ["elmo", "bilm", "word-embeddings"]
# In place of these for a model of proteins.
PROTEIN_TAGS = ["elmo", "bilm", "protein", "residue-embeddings"]
# The Hub's name of each Auto class's task; models of some tasks have labels and a pipeline.
TASKS = {head.auto_class: head.task for head in HEADS}
LABELLED = {head.auto_class for head in HEADS if head.has_labels}
WITHOUT_SOFTMAX = {head.auto_class for head in HEADS if head.drops_softmax}
ENGLISH_EXAMPLE = ("The bank of the river .", "Yes .")
# The language of models of proteins: ISO 639's code for content without a language.
NO_LANGUAGE = "zxx"
# The options by which a user adds what a card lacks.
OPTIONS_FOR_MISSING = {
    "licence": "--license mit",
    "language": "--language en",
    "source": "--source https://...",
}
PROTEIN_EXAMPLE = ("S E Q W E N C E", "P R O T E I N")
PROTEIN_WORDS = (
    "A word is one residue: write residues apart, as above, or pass lists of letters and `is_split_into_words=True`.\n"
    "  `elmo-hf embed` reads FASTA files, and splits their proteins."
)


@dataclass(frozen=True)
class Facts:
    """Published facts about the weights."""

    title: str  # such as "the small English model of the Allen Institute"
    page: str  # where the weights are published
    # The card's `language`, `license`, and `datasets` if exactly the training texts are on the Hub.
    metadata: Mapping[str, Any]
    sections: str  # the sections about the training text, the licence and published scores
    words: str | None = None  # how to split text, if `word_splitter` does not describe it
    example: Sequence[str] = ENGLISH_EXAMPLE  # two texts for the snippet


def published_facts(name: str) -> Facts | None:
    """Reads the `facts_file` of a name; None if there is none.

    The key `elmo_hf` of its metadata has values for the template only.
    """
    path = facts_file(name)
    if path is None:
        return None
    card = ModelCard.load(str(path))
    metadata = card.data.to_dict()
    template_values = metadata.pop("elmo_hf")
    return Facts(metadata=metadata, sections=card.text.strip(), **template_values)


@dataclass(frozen=True)
class Conversion:
    """How a folder came from a checkpoint."""

    source_name: str  # the name of the source
    digests: Mapping[str, str]  # SHA-256 of each source file, by file name
    difference: float | None  # the largest difference that the check found, or None
    origin: str | None = None  # the address or the name of the files, if they are not from the published addresses
    reproduced: Sequence[str] = ()  # the published models whose published vectors the model has


@dataclass(frozen=True)
class CardContent:
    """What a card says of a model.

    Attributes:
        config: the architecture.
        num_parameters: how many numbers the saved weights have, with mixes and padding vectors.
        auto_class: the class that loads the saved model. `AutoModelForPreTraining` gets a second snippet, because the
            first one loads only its biLM.
        word_splitter: how the tokenizer splits raw text; None if that is not known; `facts.words` replaces it.
        facts: the facts that the authors of the weights published.
        conversion: how the folder was converted from a checkpoint.
        run: how the model was trained, with its numbers as text.
        folder: the path that the snippet loads; None: the name of the folder.
    """

    config: ElmoConfig
    num_parameters: int | None = None
    auto_class: str = "AutoModel"
    word_splitter: str | None = "ptb"
    facts: Facts | None = None
    conversion: Conversion | None = None
    run: TrainingSummary | None = None
    folder: str | None = None


def render_card(
    name: str, content: CardContent, labels: Mapping[str, Any] | None = None, repository: str | None = None
) -> str:
    """Renders a card.

    Args:
        name: the title; the name of the folder, or of the repository.
        content: what the card says of the model.
        labels: further metadata of `ModelCardData`, such as `license`; they override those of `content.facts`, except
            labels without a value.
        repository: the Hub repository `org/name` that the snippet loads; None: the snippet loads the folder, and the
            card lists what to add.
    """
    config, auto_class, facts = content.config, content.auto_class, content.facts
    published = {} if facts is None else dict(facts.metadata)
    further = {key: value for key, value in (labels or {}).items() if value is not None}
    language = (published | further).get("language")
    defaults = {
        "library_name": "transformers",
        "pipeline_tag": TASKS.get(auto_class, FEATURE_EXTRACTION),
        "tags": tags_for(language),
    }
    data = ModelCardData(**defaults | published | further)
    words, example = _words_and_example(facts, language)
    sizes = architecture(config, content.num_parameters)
    if auto_class in WITHOUT_SOFTMAX:
        sizes = [row for row in sizes if row[0] != "softmax"]
    if auto_class in LABELLED:
        sizes.append(("labels", ", ".join(markdown(config.id2label[index]) for index in sorted(config.id2label))))
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATES / "template.md"),
        name=name,
        version=metadata.version("elmo-hf"),
        package=ELMO_HF,
        loaded=string_literal(repository or content.folder or name),
        architecture=sizes,
        config=config,
        word_limit=word_limit(config),
        words=words,
        unit="residue" if NO_LANGUAGE in as_list(language) else "word",
        word_splitter=content.word_splitter,
        is_labelled=auto_class in LABELLED,
        auto_class=auto_class.removesuffix("ForPreTraining"),
        is_pair=takes_pairs(config, auto_class),
        data=data,
        facts=facts,
        provenance=provenance(data.to_dict(), asks=repository is None),
        example=example,
        conversion=content.conversion,
        run=content.run,
        num_softmax_words=config.num_softmax_words if auto_class == "AutoModelForPreTraining" else None,
        printable=printable,
        markdown=markdown,
        code_span=code_span,
    )
    return card.content


def tags_for(language: Any) -> list[str]:
    """The tags of a card for its language or languages."""
    return PROTEIN_TAGS if NO_LANGUAGE in as_list(language) else TAGS


def _words_and_example(facts: Facts | None, language: Any) -> tuple[str | None, Sequence[str]]:
    """How to split text, or None if the splitter's name says it; and two texts for the snippet."""
    if facts is not None:
        return facts.words, facts.example
    if NO_LANGUAGE in as_list(language):
        return PROTEIN_WORDS, PROTEIN_EXAMPLE
    return None, ENGLISH_EXAMPLE


def auto_class_of(class_name: str, auto_map: Mapping[str, str]) -> str:
    """The Auto class that loads a class; `AutoModel` for a user's own class."""
    for auto_class, path in auto_map.items():
        if path.rpartition(".")[2] == class_name:
            return auto_class
    return "AutoModel"


def loading_line(
    name: str, config: ElmoConfig, auto_class: str, revision: str | None = None, language: Any = None
) -> str:
    """A line of Python that loads a model from the Hub by its own Auto class and runs it on an example.

    Args:
        name: `org/name`.
        config: of the model.
        auto_class: the Auto class.
        revision: the commit to load; None: the newest.
        language: the code or codes in the card's metadata.
    """
    _, example = _words_and_example(None, language)
    num_texts = 2 if takes_pairs(config, auto_class) else 1
    texts = ", ".join(string_literal(text) for text in example[:num_texts])
    pinned = "" if revision is None else f"revision={string_literal(revision)}, "
    return (
        f"from transformers import {auto_class} as Model, AutoTokenizer as Tokenizer; "
        f"name, options = {string_literal(name)}, dict({pinned}trust_remote_code=True); "
        f"print(Model.from_pretrained(name, **options)"
        f'(**Tokenizer.from_pretrained(name, **options)({texts}, return_tensors="pt")))'
    )


def takes_pairs(config: ElmoConfig, auto_class: str) -> bool:
    """Whether a model reads two texts in each row."""
    return config.text_pairs or auto_class == "AutoModelForQuestionAnswering"


def provenance(metadata: Mapping[str, Any], asks: bool = True) -> str:
    """Licence, language and source for a card without published facts: a table, and a list of missing values."""
    sources = [f"https://huggingface.co/{name}" for name in as_list(metadata.get("base_model"))]
    if not sources:
        sources = [str(source) for source in as_list(metadata.get("source"))]
    values = {
        "licence": markdown(metadata.get("license") or ""),
        "language": markdown(", ".join(str(language) for language in as_list(metadata.get("language")))),
        "source": ", ".join(_linked(source) for source in sources),
    }
    rows = [f"| {name} | {value} |" for name, value in values.items() if value]
    missing = [name for name, value in values.items() if not value]
    parts = []
    if rows:
        parts.append("\n".join(["| | |", "|---|---|", *rows]))
    if missing and asks:
        options = " ".join(OPTIONS_FOR_MISSING[name] for name in missing)
        parts.append(
            f"Not given: {', '.join(missing)}. Fill them in before you share this folder:\n"
            f"`elmo-hf card FOLDER {options}`."
        )
    return "\n\n".join(parts)


def as_list(value: Any) -> list[Any]:
    """A value of a card's metadata as a list; empty if there is none."""
    values = value if isinstance(value, list | tuple) else [value]
    return [entry for entry in values if entry]


def _linked(source: str) -> str:
    """A source as Markdown: an address as a link, a name as text."""
    return f"<{source}>" if ADDRESS.fullmatch(source) else markdown(source)


def architecture(config: ElmoConfig, num_parameters: int | None) -> list[tuple[str, str]]:
    """The rows of the card's table of sizes."""
    layers = _counted(config.num_hidden_layers, "layer")
    skip = "with" if config.use_skip_connections else "without"
    direction = "" if config.bidirectional else ", forward only"
    rows = [
        ("parameters", "not counted" if num_parameters is None else f"{num_parameters:,}"),
        ("token encoder", _token_encoder(config)),
        ("biLM", f"{layers}, {skip} skip connections{direction}"),
        ("cell, projection", f"{config.cell_size}, {config.projection_size}"),
        ("cell clip, projection clip", f"{config.cell_clip}, {config.projection_clip}"),
    ]
    if config.aligned_layers:
        rows.append(("aligned layers", ", ".join(map(str, config.aligned_layers))))
    if config.num_softmax_words is not None:
        rows.append(("softmax", f"{config.num_softmax_words:,} words"))
    return rows


def _token_encoder(config: ElmoConfig) -> str:
    """The size of what makes a vector of a word."""
    if config.token_encoder == "word_embedding":
        width = "" if config.word_embedding_size is None else f"{config.word_embedding_size}-d "
        return f"{width}word embedding, {config.vocab_size - 1} words"
    words = ""
    if config.num_input_words > 0:
        words = f"{config.word_embedding_size}-d words ({config.num_input_words}) and "
    kind = "characters" if config.alphabet == "bytes" else f"code points ({config.num_characters})"
    filters = ", ".join(f"{width}:{count}" for width, count in config.char_filters)
    return (
        f"{words}{config.char_embedding_size}-d {kind}, filters {filters} ({config.char_activation}), "
        f"{_counted(config.num_highway_layers, 'highway layer')}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def word_limit(config: ElmoConfig) -> str | None:
    """How much of a word is read; None if words are looked up whole."""
    if config.token_encoder == "word_embedding" and config.alphabet == "bytes":
        return None
    unit = "bytes of UTF-8" if config.alphabet == "bytes" else "code points"
    return f"{config.max_word_length - 2} {unit}"
