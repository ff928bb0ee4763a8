"""A function that embeds a small corpus, or other documents, in a folder of the test's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmo_hf import ElmoModel, ElmoTokenizer
from tests.helpers.vectors import TEXT, embed_file


@pytest.fixture
def embed(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Embeds `corpus.txt`, other documents or a stream into an output; returns the number of sentences.

    Windows have about 59 characters: those of the corpus have three, two and one sentences.
    """
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text(TEXT, encoding="utf-8")

    def embed_them(
        output: str, *sources: str, stream: Any = None, tokenizer: ElmoTokenizer = tiny_tokenizer, **options: Any
    ) -> int:
        options = {"window_characters": 59} | options
        return embed_file(mixed_model, tokenizer, stream or [*(sources or ["corpus.txt"])], output, **options)

    return embed_them
