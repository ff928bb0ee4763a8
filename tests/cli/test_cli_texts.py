"""Text as the commands of language models read it: CoNLL-U, and other encodings than UTF-8."""

from pathlib import Path

import pytest
from commands import assert_fails, run
from typer.testing import Result


def as_conllu(text: Path, path: Path) -> Path:
    """The sentences of a text as CoNLL-U."""
    sentences = [line.split() for line in text.read_text().splitlines() if line]
    rows = [[f"{k}\t{word}" + "\t_" * 8 for k, word in enumerate(words, start=1)] for words in sentences]
    path.write_text("".join("\n".join(lines) + "\n\n" for lines in rows))
    return path


def test_all_commands_read_conllu_as_the_text_that_it_is(
    pretrained: tuple[Path, Result], work: Path, tmp_path: Path
) -> None:
    files = {name: as_conllu(work / f"{name}.txt", tmp_path / f"{name}.conllu") for name in ("corpus", "held-out")}
    for name, path in (("text", work / "corpus.txt"), ("conllu", files["corpus"])):
        assert run("vocab", path, "-o", tmp_path / name).exit_code == 0
    assert (tmp_path / "text").read_bytes() == (tmp_path / "conllu").read_bytes()
    scores = [run("score", pretrained[0], path).stdout for path in (work / "held-out.txt", files["held-out"])]
    assert scores[0] == scores[1]
    options = ("--vocabulary", work / "words.txt", "--config", work / "config.json", "--max-steps", 2, "--rows", 3)
    for name, path in (("a", work / "corpus.txt"), ("b", files["corpus"])):
        assert run("pretrain", path, "-o", tmp_path / name, *options, "--unroll-steps", 5).exit_code == 0
    assert (tmp_path / "a" / "run.json").read_bytes() == (tmp_path / "b" / "run.json").read_bytes()


def test_a_text_of_another_encoding_is_named_and_read_when_its_encoding_is_given(
    pretrained: tuple[Path, Result], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.txt").write_bytes("fine\nÜbung é\n".encode("latin-1") * 9)
    message = "Error: latin.txt, line 2: not UTF-8 (byte 0xdc). Give the file's encoding, such as `--encoding latin-1`"
    options = ("--vocabulary", work / "words.txt", "--config", work / "config.json", "--max-steps", 1, "--rows", 1)
    for command in (
        ("vocab", "latin.txt", "-o", "words"),
        ("score", pretrained[0], "latin.txt"),
        ("pretrain", "latin.txt", "-o", "lm", *options, "--unroll-steps", 2),
    ):
        assert_fails(run(*command), 1, message)
        assert [path.name for path in tmp_path.iterdir()] == ["latin.txt"]
        result = run(*command, "--encoding", "latin-1")
        assert result.exit_code == 0, result.output
        if command[0] == "vocab":
            assert Path("words").read_text(encoding="utf-8").split()[3:] == ["fine", "Übung", "é"]
            Path("words").unlink()
