"""Cards of published checkpoints are complete and valid on the Hub, and text from outside stays text in any card."""

import ast
import os
import re
from pathlib import Path

import pytest
from huggingface_hub import EvalResult, ModelCard
from transformers.modelcard import TrainingSummary

from elmo_hf import ElmoConfig
from elmo_hf.conversion.published import PUBLISHED
from elmo_hf.share.facts_files import TEMPLATES
from elmo_hf.share.model_card import (
    CardContent,
    Conversion,
    as_list,
    loading_line,
    provenance,
    published_facts,
    render_card,
)
from elmo_hf.share.saved_card import label_card, named_card
from elmo_hf.text.escapes import code_span, markdown, printable, string_literal

CARDS = sorted({path.name.removesuffix(".md") for path in TEMPLATES.iterdir() if path.suffix == ".md"} - {"template"})
# The licences of https://huggingface.co/docs/hub/repositories-licenses that our cards use.
LICENCES = {"other", "unknown", "bsd-2-clause", "mit"}
SMALL = ElmoConfig(cell_size=32, projection_size=8)


def card_of(name: str) -> str:
    conversion = Conversion(name, {"weights.hdf5": "abc"}, difference=1e-6)
    content = CardContent(SMALL, facts=published_facts(name), conversion=conversion)
    return render_card(f"elmo-{name}", content)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_legal_metadata_and_all_sections(name: str) -> None:
    text = card_of(name)
    data = ModelCard(text).data.to_dict()
    assert "elmo_hf" not in data
    assert (data["library_name"], data["pipeline_tag"]) == ("transformers", "feature-extraction")
    further = ["protein", "residue-embeddings"] if name == "seqvec" else ["word-embeddings"]
    assert data["tags"] == ["elmo", "bilm", *further]
    assert data["license"] in LICENCES
    assert ("license_name" in data, "license_link" in data) == (data["license"] == "other",) * 2
    assert data["language"]
    assert all(re.fullmatch("[a-z]{2,3}", code) for code in data["language"])
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", dataset) for dataset in data.get("datasets", []))
    # The authors' scores are in the text; in the metadata they would count as measured on this folder.
    assert "model-index" not in data
    sections = "Architecture, Training data, Licence, Published scores, Where it comes from, Limits"
    assert ", ".join(re.findall(r"^## (.*)$", text, flags=re.MULTILINE)) == sections
    assert re.findall(r"^- \*\*(.*)\.\*\*", text, flags=re.MULTILINE) == ["State", "Words", "Long words", "Bias"]
    assert "None" not in text.replace("None stand", "")
    assert not re.search(r"\n\n\n|[{}]|\s\n", text.replace("\n\n", "\n"))
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    # Those of other templates are run in test_push.py; cards differ in their two texts alone.
    assert [*ast.literal_eval(re.findall(r"tokenizer\((\[.*\]), ", snippet)[0])] == [*published_facts(name).example]


def test_every_published_model_of_two_files_has_one_card_and_44_languages_share_one() -> None:
    names = {name.removesuffix("-lm") for name, published in PUBLISHED.items() if published.options}
    kinds = {"crosslingual", "manylangs"}
    assert {name for name in names if not name.startswith("crosslingual-")} | kinds == set(CARDS)
    assert published_facts("nlpl-218") is None
    languages = published_facts("manylangs-zh").metadata["language"]
    assert languages == [PUBLISHED[name].language for name in PUBLISHED if name.startswith("manylangs-")]
    assert len(set(languages)) == len(languages) == 44


def test_a_card_of_proteins_has_residues_in_place_of_english_words() -> None:
    card = render_card("mine", CardContent(SMALL), {"language": ["zxx"]})
    assert 'tokenizer(["S E Q W E N C E", "P R O T E I N"], padding=True' in card
    assert "A word is one residue: write residues apart, as above" in card
    assert "Penn Treebank" not in card
    assert "the ELMo vector of each residue: the scalar mix of all layers" in card
    assert not re.search(r"word-embeddings|each word|its words|the word by itself", card)
    english = render_card("mine", CardContent(SMALL), {"language": ["en"]})
    assert 'tokenizer(["The bank of the river .", "Yes ."], padding=True' in english
    assert "Penn Treebank" in english
    assert "the ELMo vector of each word: the scalar mix of all layers" in english
    assert "residue" not in english


@pytest.mark.parametrize("language", ["zxx", ["zxx"], "en", None])
def test_the_line_that_loads_a_model_has_text_of_its_language(language: object) -> None:
    line = loading_line("org/its", SMALL, "AutoModel", language=language)
    assert ('("S E Q W E N C E", return_tensors' in line) == ("zxx" in as_list(language))
    assert ('("The bank of the river .", return_tensors' in line) == ("zxx" not in as_list(language))


def test_labels_win_over_facts() -> None:
    data = ModelCard(render_card("mine", CardContent(SMALL, facts=published_facts("de")), {"license": "mit"})).data
    assert (data.license, data.language) == ("mit", ["de"])


def test_labels_keep_what_a_card_says_already(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("---\npipeline_tag: text-classification\nlicense: mit\n---\n\nMine.\n", encoding="utf-8")
    label_card(path, {"license": "cc0-1.0"})
    data = ModelCard.load(path).data
    assert (data.pipeline_tag, data.license, data.library_name) == ("text-classification", "cc0-1.0", "transformers")


def test_only_the_cards_own_snippet_and_title_are_renamed() -> None:
    card = """
# {0}
AutoModel.from_pretrained({1}, trust_remote_code=True)
AutoModel.from_pretrained("org/other", trust_remote_code=True)
AutoModel.from_pretrained({1}, trust_remote_code=True)
# my\\_
"""
    assert named_card(card.format("my\\_", '"my_"'), "org/its") == card.format("its", '"org/its"')
    assert named_card(card.format("Ours", '"my_"'), "org/its") == card.format("Ours", '"org/its"')
    pinned = 'AutoModel.from_pretrained("my", revision="x", trust_remote_code=True)'
    assert named_card(f"# my\n{pinned}", "org/its") == f"# my\n{pinned}"


@pytest.mark.parametrize(
    "content",
    [
        b"---\na: &a [x, x]\nb: [*a, *a]\n---\n",
        b"---\na: [\n---\n",
        b"---\n" + b"[" * 1500 + b"\n---\n",
        b"---\nmodel-index: 3\n---\n",
        b"\xff",
        b"",  # a pipe
        b"x" * (2**20 + 1),
    ],
    ids=lambda content: str(content[:20]),
)
def test_a_damaged_card_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(content) if content else os.mkfifo(path)
    with pytest.raises(ValueError, match=f"^{path}") as error:
        label_card(path, {"license": "mit"})
    assert "\n" not in str(error.value)
    assert not content or path.read_bytes() == content


TEXTS = ["plain-name_2.5B", 'a"b', "a\\b", "a\nb", "```\nx", "<b>&amp;", "café 日本", "\udce9", "\x1b[0m", "a|b", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_a_literal_is_the_text_on_one_line(text: str) -> None:
    literal = string_literal(text)
    assert ast.literal_eval(literal) == text
    assert literal.isprintable()
    assert "`" not in literal


@pytest.mark.parametrize(
    ("escape", "text", "expected"),
    [
        (markdown, "my_model_2 (日本), 5.5B, betas=(0.9,0.999)", "my_model_2 (日本), 5.5B, betas=(0.9,0.999)"),
        (markdown, "[a](b)", r"\[a\](b)"),
        (markdown, "a|b\\c", r"a\|b\\c"),
        (markdown, "*a* _b_ a_b ~c~", r"\*a\* \_b\_ a_b \~c\~"),
        (markdown, "&lt; `x`", r"\&lt; \`x\`"),
        (markdown, "a\n# b", r"a\\n# b"),
        (markdown, "C# in B ##", r"C# in B \##"),  # in a heading, the last word would vanish
        # Code has a fence that the text cannot close.
        (code_span, "a`b", "``a`b``"),
        (code_span, "`", "`` ` ``"),
        (code_span, "a\nb", r"`a\nb`"),
    ],
)
def test_what_markdown_would_read_is_escaped(escape: object, text: str, expected: str) -> None:
    assert escape(text) == expected


@pytest.mark.parametrize("text", ["x\n---\ny", '"]: {a}', "<b>|`\udce9"])
def test_a_runs_values_change_neither_metadata_nor_tables(text: str) -> None:
    result = EvalResult("feature-extraction", "org/data", printable(text), "f1", 0.5)
    run = TrainingSummary(text, dataset=text, finetuned_from=text, eval_lines=[{text: text}], license="mit")
    run.hyperparameters = run.eval_results = {text: text}
    content = CardContent(ElmoConfig(), run=run)
    labels = {"datasets": ["org/data"], "model_name": printable(text), "eval_results": [result]}
    card = render_card(text, content, labels)
    data = ModelCard(card).data
    assert (data.model_name, data.datasets, data.pipeline_tag) == (printable(text), ["org/data"], "feature-extraction")
    shown, lines = markdown(text), card.splitlines()
    assert [lines.count(f"| {shown} | {shown} |"), lines.count(f"| {shown} |"), lines.count(f"# {shown}")] == [2, 2, 1]


def test_metadata_of_any_name_is_metadata() -> None:
    labels = {"name": "of a model", "content": 1, "config": [2], "repository": "org/other"}
    card = ModelCard(render_card("mine", CardContent(SMALL), labels))
    assert labels.items() <= card.data.to_dict().items()
    assert "# mine" in card.text.splitlines()


def test_a_card_asks_only_for_what_it_lacks() -> None:
    asked = provenance({"language": "zxx"})
    assert "Not given: licence, source." in asked
    assert "`elmo-hf card FOLDER --license mit --source https://...`." in asked
    assert "--language" in provenance({})
    assert "Not given" not in provenance({"language": "en", "license": "mit", "source": "https://example.org"})
