"""Text from outside stays text in a card and on a terminal."""

import ast

import pytest
from huggingface_hub import EvalResult, ModelCard
from transformers.modelcard import TrainingSummary

from elmo_hf import ElmoConfig
from elmo_hf.share.model_card import render_card
from elmo_hf.text.escapes import code_span, markdown, printable, string_literal

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
    card = render_card(
        text, ElmoConfig(), run=run, datasets=["org/data"], model_name=printable(text), eval_results=[result]
    )
    data = ModelCard(card).data
    assert (data.model_name, data.datasets, data.pipeline_tag) == (printable(text), ["org/data"], "feature-extraction")
    shown, lines = markdown(text), card.splitlines()
    assert [lines.count(f"| {shown} | {shown} |"), lines.count(f"| {shown} |"), lines.count(f"# {shown}")] == [2, 2, 1]
