"""The README.md of a converted folder, rendered by `huggingface_hub` from `model_cards/template.md`."""

from importlib import metadata, resources

from huggingface_hub import ModelCard, ModelCardData

from elmo_hf.configuration_elmo import ElmoConfig


def render_card(
    name: str,
    config: ElmoConfig,
    num_parameters: int,
    source_name: str,
    sources: dict[str, str],
    difference: float | None,
    word_splitter: str,
) -> str:
    """Renders the card.

    Args:
        name: the folder's name, from which the card's snippet loads.
        config: the architecture.
        num_parameters: numbers in the source checkpoint.
        source_name: what the source is called, such as `elmo_small`.
        sources: SHA-256 of each source file by its name.
        difference: largest difference found by the check, or None.
        word_splitter: how the folder's tokenizer splits raw text.
    """
    data = ModelCardData(
        library_name="transformers", pipeline_tag="feature-extraction", tags=["elmo", "bilm", "word-embeddings"]
    )
    unit = {"bytes": "bytes of UTF-8", "code_points": "code points"}[config.alphabet]
    cuts_words = config.token_encoder == "char_cnn" or config.alphabet == "code_points"
    card = ModelCard.from_template(
        data,
        template_path=str(resources.files("elmo_hf.model_cards") / "template.md"),
        name=name,
        source_name=source_name,
        version=metadata.version("elmo-hf"),
        hidden_size=config.hidden_size,
        architecture=_architecture(config, num_parameters),
        sources=sources,
        difference=difference,
        longest_word=f"{config.max_word_length - 2} {unit}" if cuts_words else None,
        word_splitter=word_splitter,
    )
    return card.content


def _architecture(config: ElmoConfig, num_parameters: int) -> list[tuple[str, str]]:
    if config.token_encoder == "char_cnn":
        filters = ", ".join(f"{width}:{count}" for width, count in config.char_filters)
        words = (
            f"{config.word_embedding_size}-d words ({config.num_input_words}) and " if config.num_input_words else ""
        )
        kind = "characters" if config.alphabet == "bytes" else f"code points ({config.num_characters})"
        encoder = (
            f"{words}{config.char_embedding_size}-d {kind}, filters {filters} ({config.char_activation}), "
            f"{config.num_highway_layers} highway layers"
        )
    else:
        width = f"{config.word_embedding_size}-d " if config.word_embedding_size is not None else ""
        encoder = f"{width}word embedding, {config.vocab_size - 1} words"
    skip = "with" if config.use_skip_connections else "without"
    return [
        ("parameters", f"{num_parameters:,}"),
        ("token encoder", encoder),
        ("biLM", f"{config.num_hidden_layers} layers, {skip} skip connections"),
        ("cell, projection", f"{config.cell_size}, {config.projection_size}"),
        ("cell clip, projection clip", f"{config.cell_clip}, {config.projection_clip}"),
    ]
