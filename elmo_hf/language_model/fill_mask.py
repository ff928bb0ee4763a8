"""The pipeline `fill-mask`: gaps of raw texts, in the form of transformers' `FillMaskPipeline`.

`elmo_hf.pipeline("fill-mask", model)` makes it. A gap is `___`. Answers have the keys of the stock pipeline:

    score       the probability, by default of the product of both directions (see `cloze.py`)
    token       the class of the word, its line in the vocabulary of the softmax, from 0
    token_str   the word
    sequence    the text with the word in the gap

Deliberate differences from the stock pipeline: `direction` says which language models predict; a target that the
softmax does not know is refused, where the stock one takes another word for it.
"""

from typing import Any

from transformers import Pipeline

from .cloze import BOTH, gap_log_probs, gaps, rank_words

KEYS = ("score", "token", "token_str", "sequence")


class ElmoFillMaskPipeline(Pipeline):
    """Fills the gaps of texts with words."""

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_feature_extractor = False

    def __call__(self, inputs: str | list[str], **kwargs: Any) -> Any:
        """Gives a list of answers for a text with one gap, and a list of such lists if it has several.

        Args:
            inputs: a text, or a list of texts; a list of several gives a list with an entry for each.
            **kwargs: `top_k` (default 5), how many words; `targets`, the words to choose from; `direction`, `"both"`
                (default), `"forward"` or `"backward"`.

        Raises:
            ValueError: if a text has no gap, or the softmax does not know a target.
        """
        kwargs.pop("batch_size", None)  # texts are read one by one
        texts = [inputs] if isinstance(inputs, str) else inputs
        outputs = [super(ElmoFillMaskPipeline, self).__call__(text, **kwargs) for text in texts]
        return outputs[0] if len(outputs) == 1 else outputs

    def _sanitize_parameters(
        self, top_k: int | None = None, targets: str | list[str] | None = None, direction: str | None = None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        targets = [targets] if isinstance(targets, str) else targets
        given = {"top_k": top_k, "candidates": targets, "direction": direction}
        return {}, {}, {name: value for name, value in given.items() if value is not None}

    def preprocess(self, text: str) -> dict[str, Any]:
        """The words of a text, and their places in it."""
        offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return {"text": text, "offsets": offsets, "words": [text[start:end] for start, end in offsets]}

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        places = gaps(model_inputs["words"])
        log_probs = gap_log_probs(self.model, self.tokenizer, model_inputs["words"], places)
        return model_inputs | {"places": places, "log_probs": log_probs}

    def postprocess(
        self, outputs: dict[str, Any], top_k: int = 5, candidates: list[str] | None = None, direction: str = BOTH
    ) -> list[Any]:
        """The answers for each gap."""
        answers = []
        ranked = rank_words(outputs["log_probs"], self.tokenizer, top_k, candidates, direction)
        for place, words in zip(outputs["places"], ranked, strict=True):
            start, end = outputs["offsets"][place]
            before, behind = outputs["text"][:start], outputs["text"][end:]
            found = [(each.probability, each.word_class, each.word, before + each.word + behind) for each in words]
            answers.append([dict(zip(KEYS, each, strict=True)) for each in found])
        return answers[0] if len(answers) == 1 else answers
