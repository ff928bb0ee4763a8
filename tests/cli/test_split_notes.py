"""How commands read text that is split already, and the note on it: what `score` takes from bilm-tf's models."""

import json
import shutil
from pathlib import Path

import pytest

from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.folder.loading import BILM_TF_SCORING, load_for_pretraining, scoring_splitter
from elmo_hf.share.saved_card import label_card, reads_residues
from elmo_hf.text.first_look import Marks, are_single_words, are_unsplit, looks_split
from tests.helpers.checkpoints import allennlp_to_folder, shared
from tests.helpers.commands import output_of, run
from tests.helpers.language_models import WORDS, random_language_model, tiny_files, words_file
from tests.helpers.tiny_inputs import TINY

# The words of the tiny language model, and two that Penn Treebank rules would take apart.
SPLIT = "the ferry <unk> left , two @-@ two .\n\nnobody knew .\n"
FILES = {
    "split.txt": SPLIT,
    "nine.txt": SPLIT * 9,
    "raw.txt": "The ferry left, and nobody knew it was late.\n",
    "cannot.txt": "You cannot do it , he said .\n",
    "names.txt": "Qqrx saw Zwqv, Wqzt.\nThe old man went home.\n",
    "german.txt": "Der alte Mann ging zum Fluss, und niemand wusste, warum.\nSie lachten.\n",
    "words.jsonl": json.dumps(["the", "ferry", "left", ",", "two", "."]) + "\n",
    "several.txt": "We left. It rained.\n“No!” She went.\nYes.",
    "few.txt": "We left. It rained.\nYes.\n",
    "single.tsv": "item\ttext\n"
    + "".join(f"1\t{word}\n" for word in ["the", "old", "man", "went", "home", "at", "ten"]),
    "attached.txt": "The ferry left, and nobody knew.\nNobody knew it was late.\n",
    "one.txt": "The old man left in the night and no one in the old town knew why.\n",
    "glued.txt": "<S>\n</S>\n<UNK>\nThe\nferry\nleft,\nand\nnobody\nknew.\nNobody\nknew\nit\nwas\nlate.\n",
    "clean.txt": "<S>\n</S>\n<UNK>\nthe\nferry\nleft\nand\nnobody\nknew\n.\n,\n",
    "small.json": json.dumps(TINY | {"softmax": "full"}),
    "chinese.txt": "我们坐在河岸上，看着渡船离开。\n很晚了！\n",
    "long.txt": f"{'x' * 48}\n{'河' * 17}\n{'é' * 24}b\n" * 2,  # 48, 51 and 49 bytes
}
LOOKS = "looks split into words already"
AT_BLANKS, BY_RULES = "split at blanks", "split by Penn Treebank rules"
EMBEDDED = "it was split by Penn Treebank rules. --split-into-words splits it at blanks."
RESPLIT = f"38% of the words at the beginning of {{0}} are unknown, {BY_RULES}, and 17% if {AT_BLANKS}."
USE_BLANKS, USE_RULES = " --words whitespace splits it at blanks.", " --words ptb splits it by Penn Treebank rules."
SPLIT_WELL = f"17% of the words at the beginning of {{0}} are unknown, {AT_BLANKS}, and 38% if {BY_RULES}."
FOREIGN = (
    " The text may be in another language than the model's vocabulary, or spelled differently, or, in a table, be "
    "another column than that of the sentences (--column NAME)."
)
SINGLE = "most lines or rows of {0} have one word, and each was read as a sentence of its own. {1}"
JOIN = "Join the words of a sentence in one line or row."
CUT = (
    "have more than 48 bytes, of which 48 are read. Put blanks between words that have none, such as Chinese words, or "
    "residues of proteins."
)
ATTACHED = "{0} of the words at the beginning of {1} end in a mark, such as `{2}`, because it was split at blanks. "
LEAVE_OUT = "Leave out --split-into-words, and tiny splits it by Penn Treebank rules."
VOCABULARY = (
    "the vocabulary looks split at blanks: 21% of its words end in a mark, such as `left,`. The model's text is split "
    "by Penn Treebank rules, and so are the words that `elmo-hf vocab {0} -o WORDS --words ptb` writes."
)
TRAIN = "--max-steps 1 --rows 1 --unroll-steps 2"
# Commands, in which `lm` is bilm-tf's tiny language model, and their notes.
NOTES = {
    "score lm split.txt": [SPLIT_WELL.format("split.txt")],
    "score lm split.txt --words ptb": [f"split.txt {LOOKS}. {RESPLIT.format('split.txt')}{USE_BLANKS}"],
    "score tiny split.txt": [
        f"split.txt {LOOKS}. 19% of the words at the beginning of split.txt are unknown, {BY_RULES}, and 17% if "
        f"{AT_BLANKS}.{USE_BLANKS}"
    ],
    "score tiny cannot.txt": [],
    "score tiny cannot.txt --words whitespace": [
        f"12% of the words at the beginning of cannot.txt are unknown, {AT_BLANKS}, and 0% if {BY_RULES}.{USE_RULES}"
    ],
    "score tiny raw.txt": [],
    "score tiny raw.txt --words whitespace": [
        f"22% of the words at the beginning of raw.txt are unknown, {AT_BLANKS}, and 0% if {BY_RULES}.{USE_RULES}"
    ],
    "score tiny names.txt": [
        f"25% of the words at the beginning of names.txt are unknown, {BY_RULES}, and 44% if {AT_BLANKS}."
    ],
    "score tiny german.txt": [
        f"75% of the words at the beginning of german.txt are unknown, {BY_RULES}, and 100% if {AT_BLANKS}.{FOREIGN}"
    ],
    "score tiny words.jsonl --words whitespace": [],
    "score tiny long.txt": [
        f"4 of 6 words {CUT}",
        f"100% of the words at the beginning of long.txt are unknown, {BY_RULES}, and 100% if {AT_BLANKS}.{FOREIGN}",
    ],
    "vocab nine.txt -o words": [],
    "vocab nine.txt -o words --words ptb": [
        f"the corpus {LOOKS}; it was split by Penn Treebank rules.{USE_BLANKS}",
    ],
    "vocab raw.txt -o words": [ATTACHED.format("22%", "the corpus", "left,") + "--words ptb splits marks off."],
    "vocab raw.txt -o words --words ptb": [],
    "vocab chinese.txt -o words": [],
    "vocab words.jsonl -o words": [],
    f"pretrain attached.txt --model tiny --vocabulary glued.txt --softmax full -o new {TRAIN}": [
        VOCABULARY.format("attached.txt")
    ],
    f"pretrain attached.txt --config small.json --vocabulary glued.txt -o new {TRAIN}": [
        ATTACHED.format("27%", "the training text", "left,")
        + "--words ptb splits marks off, and `elmo-hf vocab attached.txt -o WORDS --words ptb` writes the vocabulary "
        "for it."
    ],
    "score tiny one.txt --words whitespace": [
        f"6% of the words at the beginning of one.txt are unknown, {AT_BLANKS}, and 0% if {BY_RULES}.{USE_RULES}"
    ],
    "score tiny attached.txt --words whitespace": [
        f"27% of the words at the beginning of attached.txt are unknown, {AT_BLANKS}, and 0% if {BY_RULES}.{USE_RULES}"
    ],
    "embed tiny raw.txt -o v.npz --split-into-words": [ATTACHED.format("22%", "the text", "left,") + LEAVE_OUT],
    "embed tiny raw.txt --dry-run --split-into-words": [ATTACHED.format("22%", "the text", "left,") + LEAVE_OUT],
    "embed tiny words.jsonl --dry-run --split-into-words": [],
    "usages tiny attached.txt --word knew --forms knew. -o u.csv --split-into-words": [
        ATTACHED.format("27%", "attached.txt", "left,") + LEAVE_OUT
    ],
    "vectors tiny glued.txt -o v.txt": [
        "21% of the words of glued.txt end in a mark, such as `left,`. `elmo-hf vocab TEXT -o WORDS --words ptb` "
        "writes the words of a text without such marks."
    ],
    "vectors tiny clean.txt -o v.txt": [],
    f"pretrain nine.txt --model lm -o new {TRAIN} --held-out nine.txt --checkpoint-steps 1 --words ptb": [
        f"the held-out text {LOOKS}. {RESPLIT.format('the held-out text')}{USE_BLANKS}",
        f"the training text {LOOKS}. {RESPLIT.format('the training text')}{USE_BLANKS}",
    ],
    f"pretrain nine.txt --model lm -o new {TRAIN}": [SPLIT_WELL.format("the training text")],
    f"pretrain long.txt --model tiny -o new {TRAIN}": [
        f"4 of 6 words {CUT}",
        f"100% of the words at the beginning of the training text are unknown, {BY_RULES}, and 100% if "
        f"{AT_BLANKS}.{FOREIGN}",
    ],
    "embed tiny split.txt -o v/": [f"the text {LOOKS}; {EMBEDDED}"],
    "embed tiny - -o v.hdf5": [f"the text {LOOKS}; {EMBEDDED}"],
    "embed tiny raw.txt -o v.hdf5": [],
    "embed tiny split.txt -o v.hdf5 --split-into-words": [],
    "embed tiny several.txt -o v.npz": [
        "most lines of the text have several sentences; each line was read as one. Write one sentence a line, for "
        "example with spaCy's sentencizer, to read them apart."
    ],
    "embed tiny few.txt -o v.npz": [],
    "embed tiny few.txt --dry-run": [],
    "embed tiny split.txt --dry-run": [f"the text {LOOKS}; {EMBEDDED}"],
    "embed tiny split.txt --dry-run --split-into-words": [],
    "embed tiny few.txt single.tsv --dry-run": [SINGLE.format("the text", JOIN)],
    "embed tiny long.txt --dry-run": [f"4 of 6 words at the beginning {CUT}"],
    "embed tiny long.txt -o v/": [f"4 of 6 words at the beginning {CUT}"],
    "score tiny single.tsv": [SINGLE.format("single.tsv", "In a table, --by COLUMN joins the rows of a text.")],
    "score tiny single.tsv --column text --by item": [],
    "vocab single.tsv -o words": [SINGLE.format("the corpus", JOIN)],
    f"pretrain single.tsv --model tiny -o new {TRAIN}": [SINGLE.format("the training text", JOIN)],
    "embed tiny single.tsv -o v.npz": [SINGLE.format("the text", JOIN)],
    "usages tiny single.tsv --word the --forms man -o u.csv": [SINGLE.format("single.tsv", JOIN)],
    "vectors tiny long.txt -o v.txt": [f"2 of 3 words {CUT}"],
}


@pytest.mark.parametrize("command", NOTES)
def test_a_command_notes_what_may_be_split_wrong(
    command: str, tiny_lm_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lm").symlink_to(tiny_lm_folder)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    result = run(*command.split(), stdin=SPLIT)
    assert result.exit_code == 0, result.output
    notes = [line for line in result.stderr.splitlines() if line.startswith("Note: ")]
    assert notes == [f"Note: {note}" for note in NOTES[command]]
    assert "Note:" not in result.stdout


RAW = "The ferry left, and nobody knew it was late.\n"
PUT_BLANKS = (
    "22% of the words at the beginning of the text end in a mark, such as `left,`, because it was split at blanks. Put "
    "blanks around marks, as in `late .`, unless model was trained on text like this."
)


@pytest.mark.parametrize(
    ("text", "vocabulary", "notes"),
    [
        (RAW, None, [PUT_BLANKS]),
        (RAW, ["left", ",", "late", "."], [PUT_BLANKS]),
        (RAW, ["left,", "late."], []),  # the words that the model predicts have such marks
        (RAW.replace(".", " .").replace(",", " ,"), None, []),
        ("我们 坐 在 河岸 上 ， 看着 渡船 离开 。\n", None, []),
        ("S E Q W K V\n", None, []),
    ],
)
def test_raw_text_is_noted_where_a_model_splits_at_blanks_unless_it_predicts_such_words(
    text: str,
    vocabulary: list[str] | None,
    notes: list[str],
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_folder, "model")
    words = {}
    if vocabulary is not None:
        words["words_file"] = str(words_file(tmp_path, ["<S>", "</S>", "<UNK>", *vocabulary]))
    ElmoTokenizer.from_pretrained("model", word_splitter="whitespace", **words).save_pretrained("model")
    Path("a.txt").write_text(text, encoding="utf-8")
    for option in ((), ("--split-into-words",)):
        stderr = run("embed", "model", "a.txt", "--dry-run", *option).stderr
        assert [line for line in stderr.splitlines() if line.startswith("Note")] == [f"Note: {note}" for note in notes]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("The ferry left, and nobody knew it was late.", True),
        ("Der alte Mann ging, und niemand wusste, warum. Sie lachten.", True),
        ("Il dit : « Est-ce vrai ? » Puis il partit, sans se retourner, vers la gare. Il était tard.", True),
        ("“Is it late?” he asked (twice). “No!”", True),
        ("The ferry left , and nobody at St. Ives knew it was late .", False),
        ("Am 3. Oktober kam er , und niemand wusste es .", False),
        ("so the u.s. team said it would go on as it had all along and then it went on as it had before", False),
        ("i do not know what to say to you", False),
        ("我们坐在河岸上，看着渡船离开。 很晚了！", False),
        ("S E Q W K V", False),
        (". , ; : ! ?", False),
        ("", False),
    ],
)
def test_marks_are_attached_where_many_words_end_in_one(words: str, expected: bool) -> None:
    assert Marks.of(words.split()).are_attached is expected


def test_an_example_of_attached_marks_is_the_longest_word_of_letters() -> None:
    assert Marks.of_texts(["At 10:30:00.123, Mr. Smith left, late."]).example == "left,"
    assert Marks.of_texts(["1.2, 1.25, 1."]).example == "1.25,"


def copy_with_language(source: Path, folder: Path, language: str) -> None:
    """Copies a model, and gives it a card that names its language."""
    shutil.copytree(source, folder)
    (folder / "README.md").write_text("# A model\n", encoding="utf-8")
    label_card(folder / "README.md", {"language": [language]})


CHAINS = "MKVLTAAGIVGLLLAQWSWA\nMKKTAIAIAV\nS E Q W\n"


@pytest.mark.parametrize(("language", "text", "is_noted"), [("zxx", CHAINS, True), ("en", CHAINS, False)])
def test_a_model_of_proteins_notes_that_texts_are_not_split_into_residues(
    language: str, text: str, is_noted: bool, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy_with_language(tiny_folder, Path("model"), language)
    Path("a.txt").write_text(text, encoding="utf-8")
    Path("a.fasta").write_text(">a\nMKVLTAAGIV\n", encoding="utf-8")
    result = run("embed", "model", "a.txt", "-o", "v.npz")
    note = (
        "Note: most lines or rows of the text are one word, but the words of model are residues of proteins. Write "
        "residues with blanks between them (`S E Q`), or give FASTA."
    )
    assert (note in result.stderr.splitlines()) == is_noted
    assert (note in run("embed", "model", "a.txt", "--dry-run").stderr.splitlines()) == is_noted
    assert "Note" not in run("embed", "model", "a.fasta", "-o", "w.npz").stderr


@pytest.mark.parametrize("language", ["zxx", "en"])
@pytest.mark.parametrize(
    ("text", "has_headers"),
    [(">a\nseqw\n>b\nence\n", True), (">a the first\nseqw\n", True), (f"{CHAINS}> x\n", True), (CHAINS, False)],
)
def test_a_model_of_proteins_notes_headers_that_are_read_as_sentences(
    text: str, has_headers: bool, language: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy_with_language(tiny_folder, Path("model"), language)
    Path("a.txt").write_text(text, encoding="utf-8")
    note = (
        "Note: lines of the text begin with `>`, as headers of FASTA do, but each line was read as a sentence, and the "
        "words of model are residues of proteins. If it is FASTA, give --input-format fasta."
    )
    is_noted = has_headers and language == "zxx"
    for arguments in (["--dry-run"], ["-o", "v.npz"]):
        assert (note in run("embed", "model", "a.txt", *arguments).stderr.splitlines()) == is_noted
    if is_noted:
        assert "FASTA" not in run("embed", "model", "a.txt", "-o", "w.npz", "--input-format", "fasta").stderr


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (None, False),
        ("# No metadata\n", False),
        ("---\nlanguage: zxx\n---\n", True),
        ("---\nlanguage: [en, zxx]\n---\n", True),
        ("---\nlanguage: [en\n---\n", False),  # damaged
    ],
)
def test_a_model_reads_residues_if_its_card_names_no_language(
    card: str | None, expected: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    shutil.copy(tiny_folder / "config.json", tmp_path)
    if card is not None:
        (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert reads_residues(tmp_path) is expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["MKV", "S E Q W", "AA"], True),
        (["MKV", "S E Q W"], False),  # half of them
        (["MKV", "", " ", "\n"], True),
        (["M", "K", "MKV"], False),  # proteins of one residue
        ([], False),
    ],
)
def test_texts_are_unsplit_if_most_are_one_word_of_several_letters(texts: list[str], expected: bool) -> None:
    assert are_unsplit(texts) is expected


def test_score_says_that_perplexities_count_unknown_words_if_many_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("german.txt").write_text(FILES["german.txt"], encoding="utf-8")
    Path("english.txt").write_text("The old man went to the river .\n")
    said = "are not in the softmax's vocabulary. Each counts as <UNK>, whichever word it is, so the perplexities cannot"
    assert f"\n12 of 16 words {said}" in output_of("score", "tiny", "german.txt")
    assert said not in output_of("score", "tiny", "english.txt")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["The", "old", "", "sailor,", "at"], False),  # too few
        (["The", "old", "", "sailor,", "at", "sea"], True),
        (["The old", "sailor", "was at", "sea", "for years"], False),
        (["我们坐在河岸上，看着渡船离开。"] * 9, False),
        (["Yes.", "No.", "Yes, we sat on the bank.", "No, it left.", "It had left at ten."], False),
        ([], False),
    ],
)
def test_lines_are_single_words_if_most_have_one_of_a_words_length(texts: list[str], expected: bool) -> None:
    assert are_single_words(texts) is expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["The bank of the river ."], True),
        (["He did n't say `` yes '' , Mr. Smith 's aunt knew ."], True),
        (["Homarus gammarus , known as <unk> , is 0 @.@ 7 – 2 @.@ 2 kg .", "H. americanus ."], True),
        (["mr. <unk> is chairman of <unk> the dutch group 's board", "", "he is n't late"], True),
        (["“ Is it late ? ” he asked ."], True),
        (['"Is it late?" he asked (twice). "No!"', "Well ... it is - as they say - late."], False),
        (["The bank of the river.", "He didn't say yes, and Mr. Smith's aunt knew."], False),
        (["In the text each <unk> stands for a word, and in WikiText @-@ for a hyphen, as the page says."], False),
        (["Il dit : « Est-ce vrai ? » Puis il partit, sans se retourner, vers la gare."], False),
        (["i do not know what to say to you", "Sense & Sensibility", "1 - 2 + 3"], False),
        (["我们坐在河岸上，看着渡船离开。", "很晚了！"], False),
        ([], False),
    ],
)
def test_a_text_looks_split_where_its_marks_stand_alone(texts: list[str], expected: bool) -> None:
    assert looks_split(texts) is expected


def test_a_folder_tells_that_its_model_and_vocabulary_are_bilm_tfs(tmp_path: Path) -> None:
    tensorflow, (hdf5, *_) = tiny_files(), random_language_model(3, tmp_path / "files")
    without_words = NamedFiles(tensorflow.options, tensorflow.weights)
    without_softmax = NamedFiles(hdf5.options, hdf5.weights, hdf5.vocabulary)
    for name, files, dtype, is_bilm_tfs in (
        ("tensorflow", tensorflow, "float32", True),
        ("hdf5", hdf5, "float32", True),
        ("half", hdf5, "bfloat16", True),
        ("words", without_words, "float32", False),
        ("softmax", without_softmax, "float32", False),
    ):
        allennlp_to_folder(files, tmp_path / name, source_name=name, dtype=dtype)
        config, tokenizer = ElmoConfig.from_pretrained(tmp_path / name), ElmoTokenizer.from_pretrained(tmp_path / name)
        saved = getattr(config, "task_specific_params", None) == BILM_TF_SCORING
        assert (saved, tokenizer.word_splitter) == (is_bilm_tfs, "ptb"), name
        assert scoring_splitter(config, tokenizer) == ("whitespace" if is_bilm_tfs else "ptb"), name


@pytest.mark.parametrize(("splitter", "expected"), [(None, "whitespace"), ("ptb", "ptb"), ("whitespace", "whitespace")])
def test_after_further_training_text_is_split_as_in_all_training_or_as_told(
    splitter: str | None, expected: str, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    for vocabulary in (None, words_file(tmp_path, WORDS)):
        model, tokenizer = load_for_pretraining(tiny_lm_folder, vocabulary, splitter)
        assert scoring_splitter(model.config, tokenizer) == expected
        assert tokenizer.word_splitter == (splitter or "ptb")


@pytest.mark.slow
def test_score_gives_the_perplexities_that_bilm_tf_measured(tmp_path: Path) -> None:
    source = shared("fixtures", "bilm_tf_trained")
    text = shared("data", "wikitext2", "bilm_reference")
    files = NamedFiles(source / "options.json", source / "model.ckpt-1484.index", text / "vocab_full.txt")
    allennlp_to_folder(files, tmp_path / "trained", source_name="trained")
    printed = output_of("score", tmp_path / "trained", text / "heldout.txt")
    (carried,) = (line for line in printed.splitlines() if "state carried" in line)
    assert "forward     394.11   backward     378.44   mean     386.19" in carried
