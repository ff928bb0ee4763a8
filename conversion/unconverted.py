"""What others call ELMo and cannot be converted, recognised by what its files are.

Each entry of `UNCONVERTED` has a name, a test of the SOURCE's files, and what to do. Tests read a few bytes at most.
"""

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from .sources import Source

HEAD = 1 << 16

Test = Callable[[Source], bool]


def _starts(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _holds(pattern: str, *texts: bytes) -> Test:
    """Whether a file of that name has one of the texts near its beginning; without texts, whether there is one."""
    return lambda source: any(
        fnmatch(name, pattern) and (not texts or any(text in _starts(path) for text in texts))
        for name, path in source.files.items()
    )


def _is_mindspore(source: Source) -> bool:
    """MindSpore writes one protobuf message of named tensors, whose types are words."""
    paths = [path for name, path in source.files.items() if name.endswith(".ckpt")]
    return any(
        start.startswith(b"\n") and any(word in start for word in (b"Float32", b"Float16"))
        for start in map(_starts, paths)
    )


UNCONVERTED: tuple[tuple[str, Test, str], ...] = (
    (
        "a checkpoint of MindSpore",
        _is_mindspore,
        "is MindSpore's, whose names and layout are its own. If it was made of published weights, convert those: "
        "`--model original`; a wrong name lists all.",
    ),
    (
        "Spark NLP's ELMo",
        _holds("*metadata/part-*", b"com.johnsnowlabs.nlp.embeddings.ElmoEmbeddings"),
        "is a TensorFlow program inside a pipeline of Spark NLP. Convert the module that it was made of, TF-Hub's "
        "google/elmo, or the published weights: `--model original`.",
    ),
    (
        "a model of PaddlePaddle",
        _holds("*.pdparams"),
        "is PaddlePaddle's. Its ELMo has LSTM cells without projection and clips, so it is another model: train one "
        "with `elmo-hf pretrain`, or convert published weights: `--model original`.",
    ),
    (
        "EduNLP's ELMo",
        _holds("*config.json", b"ElmoLM"),
        "is EduNLP's, whose two directions meet in every layer, so it is no ELMo as published: train one with "
        "`elmo-hf pretrain`.",
    ),
    (
        "AllenNLP's Transformer ELMo",
        _holds("*config.json", b"bidirectional_language_model_transformer"),
        "is a Transformer; an ELMo reads with LSTMs. Convert published weights instead: `--model original`.",
    ),
    (
        "an alignment of two languages",
        _holds("*mapping.pth"),
        "is a matrix that turns one language's vectors towards another's, without a model. Convert the ELMo of the "
        "language, and multiply its vectors with the matrix.",
    ),
)
