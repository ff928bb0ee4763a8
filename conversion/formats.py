"""Every format of ELMo that `elmo-hf convert` recognises, as a table; the first match counts.

Each entry pairs a test of a SOURCE's files with the reader for them. What others call ELMo and cannot be converted has
entries too, in `UNCONVERTED`: a name, the pattern of a file's name, texts of which one is near that file's beginning
(without texts the name is enough), and what to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from fnmatch import fnmatch

from .contract import Checkpoint, Given
from .hdf5 import is_hdf5
from .readers.allennlp import checkpoint_files, holds_tensorflow_checkpoint, read_allennlp_source
from .readers.manylangs import read_manylangs
from .readers.tf_hub import holds_module, read_tf_hub
from .readers.trained_allennlp import read_trained_allennlp, weights_name
from .refusals import ConversionError
from .sources import Source, beginning

EVERYTHING = frozenset(field.name for field in fields(Given))

UNCONVERTED: tuple[tuple[str, str, tuple[bytes, ...], str], ...] = (
    (
        "a checkpoint of MindSpore",
        "*.ckpt",
        (b"\x07Float32", b"\x07Float16"),
        "is MindSpore's, whose names and layout are its own. If it was made of published weights, convert those: "
        "`--model original`; a wrong name lists all.",
    ),
    (
        "Spark NLP's ELMo",
        "*metadata/part-*",
        (b"com.johnsnowlabs.nlp.embeddings.ElmoEmbeddings",),
        "is a TensorFlow program inside a pipeline of Spark NLP. Convert the module that it was made of, TF-Hub's "
        "google/elmo, or the published weights: `--model original`.",
    ),
    (
        "a model of PaddlePaddle",
        "*.pdparams",
        (),
        "is PaddlePaddle's. Its ELMo has LSTM cells without projection and clips, so it is another model: train one "
        "with `elmo-hf pretrain`, or convert published weights: `--model original`.",
    ),
    (
        "EduNLP's ELMo",
        "*config.json",
        (b"ElmoLM",),
        "is EduNLP's, whose two directions meet in every layer, so it is another model: train one with "
        "`elmo-hf pretrain`.",
    ),
    (
        "AllenNLP's Transformer ELMo",
        "*config.json",
        (b"bidirectional_language_model_transformer",),
        "is a Transformer; an ELMo reads with LSTMs. Convert published weights instead: `--model original`.",
    ),
    (
        "an alignment of two languages",
        "*mapping.pth",
        (),
        "is a matrix that turns one language's vectors towards another's, without a model. Convert the ELMo of the "
        "language, and multiply its vectors with the matrix.",
    ),
)


@dataclass(frozen=True)
class Format:
    """One entry.

    Attributes:
        name: its name, for the user.
        matches: whether a source looks like this format.
        read: reads the source, or raises a `ConversionError` that explains what to do.
        takes: the fields of `Given` that `read` uses.
    """

    name: str
    matches: Callable[[Source], bool]
    read: Callable[[Source, Given], Checkpoint]
    takes: frozenset[str] = frozenset()


def _holds(pattern: str, *texts: bytes) -> Callable[[Source], bool]:
    """Whether a file of that name has one of the texts near its beginning; without texts, whether there is one."""
    return lambda source: any(
        fnmatch(name, pattern) and (not texts or any(text in beginning(path) for text in texts))
        for name, path in source.files.items()
    )


def _explain(reason: str) -> Callable[[Source, Given], Checkpoint]:
    def read(source: Source, given: Given) -> Checkpoint:
        raise ConversionError(f"{source.path} {reason}")

    return read


FORMATS = (
    *(Format(name, _holds(pattern, *texts), _explain(reason)) for name, pattern, texts, reason in UNCONVERTED),
    Format(
        "an ELMoForManyLangs model",
        lambda source: not {"encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"}.isdisjoint(source.files),
        read_manylangs,
        frozenset({"word_splitter"}),
    ),
    Format(
        "a trained AllenNLP model",
        lambda source: weights_name(source) is not None,
        read_trained_allennlp,
        frozenset({"options", "word_splitter"}),
    ),
    Format(
        "a TensorFlow Hub module",
        holds_module,
        read_tf_hub,
        frozenset({"options", "word_splitter"}),
    ),
    Format(
        "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)",
        lambda source: holds_tensorflow_checkpoint(checkpoint_files(source)),
        read_allennlp_source,
        EVERYTHING,
    ),
    Format(
        "options and weights of AllenNLP, bilm-tf or simple_elmo",
        lambda source: any(map(is_hdf5, source.files)),
        read_allennlp_source,
        EVERYTHING,
    ),
    Format(
        "a folder for transformers",
        lambda source: "config.json" in source.files and any(name.endswith(".safetensors") for name in source.files),
        _explain(
            "is converted already: load it with `from_pretrained`, where `dtype=torch.bfloat16` gives a smaller model "
            "to `save_pretrained`, or write it back with `--to allennlp`."
        ),
    ),
)


def recognise(source: Source) -> Format:
    """Finds the first format that matches.

    Raises:
        ConversionError: if none does; lists the known ones.
    """
    for candidate in FORMATS:
        if candidate.matches(source):
            return candidate
    known = "; ".join(candidate.name for candidate in FORMATS[len(UNCONVERTED) :])
    raise ConversionError(f"{source.path} holds {source.listing}, which is none of: {known}.")
