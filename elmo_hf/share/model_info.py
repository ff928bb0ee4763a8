"""Describes a saved model and its uses, from its config, tokenizer, card and the headers of its weights.

Weights are not read, and not downloaded from the Hub; a model that was downloaded before is described without a
network. What a model can do is decided by the weights that it has: a config may describe a head or a softmax that was
not saved.
"""

import copy
import importlib.metadata
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard

from ..disk.checksums import recorded_sums
from ..folder.listed_files import WEIGHTS, is_of_model
from ..folder.loading import load_tokenizer, open_folder
from ..folder.model_names import model_folder
from ..folder.saved_config import read_config
from ..folder.saved_json import naming
from ..folder.weight_files import has_weights, read_headers, weights_problem
from ..heads import HEADS
from ..model.configuration_elmo import CODE_FILES, CODE_FOLDER, ElmoConfig
from ..model.language_model_elmo import ElmoForPreTraining
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from ..model.tokenization_elmo import ElmoTokenizer
from .model_card import TAGS, CardContent, architecture, as_list, auto_class_of, render_card, word_limit
from .saved_card import CARD, is_draft, read_card, training_of_draft, write_card

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
SPLITTERS = {"ptb": "raw text as in the Penn Treebank", "whitespace": "raw text on white space"}
# transformers' card of a pushed model has 39 of these.
PLACEHOLDER, MANY_PLACEHOLDERS = "[More Information Needed]", 30
MARKDOWN_ESCAPE = re.compile(r"\\([\W_])")
# The classes whose weights must all be there; for any other class, only the biLM's weights must.
CLASSES = {head.model_class.__name__: head.model_class for head in HEADS if head.model_class is not ElmoModel}
# The labels of a classifier that are shown.
MOST_LABELS = 8
HEAD_OF_CLASS = {head.model_class.__name__: head for head in HEADS}


@dataclass(frozen=True)
class SavedModel:
    """A saved model without its weights."""

    config: ElmoConfig  # its config
    tokenizer: ElmoTokenizer | None  # its tokenizer, or None if it has none
    tensors: dict[str, tuple[tuple[int, ...], str]]  # shape and type of each of its weights, by name
    card: ModelCard  # its card; empty without one
    folder: Path  # where its files are
    is_local: bool  # whether the folder is the user's own, and not a download, of which files may be missing

    @property
    def num_parameters(self) -> int:
        """The count of numbers in its weights."""
        return sum(math.prod(shape) for shape, _ in self.tensors.values())

    @property
    def class_name(self) -> str:
        """The class that was saved."""
        return ", ".join(self.config.architectures or []) or "ElmoModel"

    @property
    def model_class(self) -> type[ElmoPreTrainedModel]:
        """The package's class for the saved one; `ElmoModel` for a user's own class."""
        return CLASSES.get(self.class_name, ElmoModel)

    @property
    def auto_class(self) -> str:
        """The Auto class that loads it without random weights."""
        if self.class_name in CLASSES and self.problem(self.model_class) is not None:
            return "AutoModel"
        return auto_class_of(self.class_name, self.config.auto_map)

    @property
    def has_softmax(self) -> bool:
        """Whether it has language models: a softmax that the config describes and the weights contain."""
        is_described = self.config.num_softmax_words is not None or self.config.share_embedding_softmax
        return is_described and self.problem(ElmoForPreTraining) is None

    @property
    def num_softmax_words(self) -> int:
        """The size of its softmax, if it has one."""
        return self.config.num_softmax_words or self.config.vocab_size - 1

    @property
    def num_known_words(self) -> int | None:
        """How many words of a softmax the tokenizer knows; None if it knows of no softmax."""
        return None if self.tokenizer is None else self.tokenizer.num_word_classes

    def problem(self, model_class: type[ElmoPreTrainedModel]) -> str | None:
        """What keeps the weights from being a model of a class, see `weights_problem`; None if nothing does."""
        return weights_problem(self.tensors, model_class, copy.copy(self.config))


def look_at(source: str | Path) -> SavedModel:
    """Reads the description of a model.

    Args:
        source: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.

    Raises:
        ValueError: if `source` is not an ELMo model, if a file is damaged, or if the Hub cannot be reached.
    """
    folder = open_folder(source, weights=False)
    config, _ = read_config(folder)
    is_local = folder == Path(model_folder(source))
    if is_local or has_weights(folder):
        tensors = read_headers(folder)
    else:
        with naming(f"the weights of {source} cannot be read"):
            tensors = {}
            for file in HfApi().get_safetensors_metadata(str(source)).files_metadata.values():
                for name, info in file.tensors.items():
                    tensors[name] = (tuple(info.shape), info.dtype)
    tokenizer = load_tokenizer(folder) if (folder / "tokenizer_config.json").is_file() else None
    card = read_card(folder / CARD) if (folder / CARD).exists() else ModelCard("---\n{}\n---\n")
    return SavedModel(config, tokenizer, tensors, card, folder, is_local)


def describe(source: str | Path) -> list[tuple[str, str]]:
    """The facts about a model as rows of a name and a value; the argument and the errors are those of `look_at`."""
    model = look_at(source)
    config, metadata = model.config, model.card.data
    sizes = [row for row in architecture(config, model.num_parameters) if row[0] != "softmax"]
    types = sorted({DTYPES.get(kind, kind) for _, kind in model.tensors.values()})
    layers = config.num_hidden_layers + 1
    rows = [
        ("model", str(source)),
        ("class", model.class_name),
        *sizes,
        ("saved as", ", ".join(types)),
        ("vectors", f"{config.hidden_size} numbers for each word, in {layers} layers (0 is the word by itself)"),
        ("mixes", f"{config.num_output_representations} {config.layer_mix}, {_mix_weights(model)}"),
        ("softmax", _softmax(model)),
        ("tokenizer", _tokenizer(model)),
        *describe_code(model.folder, model.is_local),
        ("source", _source(model)),
        ("licence", _listed(metadata.get("license")) or "not said"),
        ("language", _listed(metadata.get("language")) or "not said"),
        *_card(model.folder),
        *_checksums(model.folder),
    ]
    problem = model.problem(model.model_class)
    if problem is not None:
        rows.append(("incomplete", f"{model.class_name} {problem}"))
    rows.append(("can", "; ".join(_abilities(model, str(source)))))
    return rows


def describe_code(folder: Path, is_local: bool = True) -> list[tuple[str, str]]:
    """A row that compares the code in a folder with this version's; none if the folder has no code.

    A download without `is_local` that lacks files of code is not compared either: the repository may have them.
    """
    present = {path.name for path in folder.glob("*_elmo.py")}
    if not present:
        return []
    is_complete = present.issuperset(CODE_FILES)
    if not is_local and not is_complete:
        return []
    differences = [f"{name} is missing" for name in CODE_FILES if name not in present]
    for name in CODE_FILES:
        if name in present and (folder / name).read_bytes() != (CODE_FOLDER / name).read_bytes():
            differences.append(f"{name} differs")
    differences += [f"{name} is not of it" for name in sorted(present.difference(CODE_FILES))]
    version = importlib.metadata.version("elmo-hf")
    if not differences:
        return [("code", f"that of elmo-hf {version}")]
    return [("code", f"not that of elmo-hf {version}: {'; '.join(differences)}")]


def _card(folder: Path) -> list[tuple[str, str]]:
    """A row with the path of a folder's card; none without a card."""
    path = folder / CARD
    if not path.exists():
        return []
    return [("card", str(path))]


def _checksums(folder: Path) -> list[tuple[str, str]]:
    """Rows with the listed SHA-256 of each file of weights; none without a list."""
    listed = recorded_sums(folder)
    weights = sorted(name for name in listed if is_of_model(name, (WEIGHTS,)))
    return [("SHA-256", f"{name} {listed[name]}") for name in weights]


def _mix_weights(model: SavedModel) -> str:
    """Where the weights of the scalar mixes come from."""
    weights = model.config.scalar_mix_weights
    if weights:
        return f"weights {_listed(weights)} of the config"
    if any("_mixes." in name for name in model.tensors):
        return "saved"
    return "equal weights"


def _softmax(model: SavedModel) -> str:
    """The size of the softmax, and whether the tokenizer has its words."""
    if not model.has_softmax:
        return "none"
    if model.num_known_words is None:
        words = "the tokenizer has no words for it"
    elif model.num_known_words != model.num_softmax_words:
        words = f"words.txt has {model.num_known_words:,} words, so it is of another softmax"
    else:
        words = "its words are known"
    return f"{model.num_softmax_words:,} words, {model.config.softmax} in training; {words}"


def _tokenizer(model: SavedModel) -> str:
    """How the tokenizer splits raw text, and how much of a word the model reads."""
    if model.tokenizer is None:
        return "none"
    limit = word_limit(model.config)
    reads = "words looked up whole" if limit is None else f"words of up to {limit}"
    return f"splits {SPLITTERS[model.tokenizer.word_splitter]}; {reads}"


def complete_card(folder: Path, repository: str) -> None:
    """Replaces a card that transformers wrote and its author did not complete by the full card for a repository."""
    card = read_card(folder / CARD)
    if is_draft(card) or card.text.count(PLACEHOLDER) >= MANY_PLACEHOLDERS:
        write_card(folder / CARD, new_card(folder, {}, repository))


def new_card(folder: Path, labels: dict[str, Any], repository: str | None = None) -> str:
    """A card for a saved folder without a card or with a Trainer's draft, whose metadata and numbers are kept.

    Args:
        folder: a folder with weights; its name is the card's title, unless there is a repository.
        labels: from `card_labels`.
        repository: the Hub repository `org/name` that the card is for.

    Raises:
        ValueError: as in `look_at`, or if a class of this package lacks weights of the biLM.
    """
    model = look_at(folder)
    problem = model.problem(ElmoModel)
    is_class_of_user = model.class_name not in {ElmoModel.__name__, *CLASSES}
    if problem is not None and not is_class_of_user:
        raise ValueError(f"{folder} {problem}.")
    config = copy.copy(model.config)
    if not model.has_softmax:
        config.num_softmax_words = None
    metadata: dict[str, Any] = {}
    if model.card.text:
        metadata = model.card.data.to_dict()
        metadata["tags"] = [*TAGS[:2], *as_list(metadata.get("tags"))]
    content = CardContent(
        config,
        num_parameters=model.num_parameters,
        auto_class=model.auto_class,
        word_splitter=None if model.tokenizer is None else model.tokenizer.word_splitter,
    )
    name = (repository or folder.resolve().name).rpartition("/")[2]
    card = render_card(name, content, metadata | labels, repository)
    if is_draft(model.card):
        card += training_of_draft(model.card)
    return card


def _source(model: SavedModel) -> str:
    """The source of the weights by the card's metadata, or by the sentence of a conversion."""
    for name in ("base_model", "source"):
        source = _listed(model.card.data.get(name))
        if source:
            return source
    sentence = re.search(r"^converted from (.+) by `elmo-hf`", model.card.text, re.MULTILINE)
    return "not said" if sentence is None else MARKDOWN_ESCAPE.sub(r"\1", sentence[1])


def _abilities(model: SavedModel, name: str) -> list[str]:
    """The commands and classes that can use the model."""
    if model.problem(ElmoModel) is not None:
        return ["nothing"]
    abilities = ["embed", "export"]
    if model.has_softmax and model.num_known_words == model.num_softmax_words:
        abilities += ["score", "fill", f"pretrain --model {name}"]
    elif model.config.token_encoder == "char_cnn" and not model.config.aligned_layers:
        abilities.append(f"pretrain --model {name} --vocabulary WORDS, which gives it a softmax to score with")
    head = HEAD_OF_CLASS.get(model.class_name)
    if head is not None and head.use is not None and model.problem(model.model_class) is None:
        labels = list(model.config.id2label.values())[:MOST_LABELS]
        abilities.append(f"{head.use} ({_listed(labels)})" if head.has_labels else head.use)
    return abilities


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
