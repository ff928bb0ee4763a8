# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""ELMo as a transformers model: token encoder, biLM, scalar mixes (Peters et al. 2018, §3).

    ids -> token encoder -> v_1 .. v_T -> biLM -> h_0 .. h_L -> scalar mixes -> ELMo vectors

Glossary: B batch, T words, C characters per word, E character embedding, P projection, H cell, L layers.

Deliberate differences from AllenNLP's `Elmo`: stateless unless a `state` is passed in, so a text has the same vectors
in every batch and call; the boundaries `<S>` and `</S>` are ordinary positions that the tokenizer adds, and the model
inserts and removes nothing; padding may be on either side; equal words of a batch go through the character CNN once;
long texts are read in pieces (`BiLM.read_in_pieces`).
"""

import contextlib
import copy
import functools
import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub import hf_hub_download
from torch import Tensor, nn
from transformers import FeatureExtractionPipeline, PreTrainedModel
from transformers.utils import ModelOutput, logging

from .configuration_elmo import AUTO_MAP, ELMO_HF, IS_CODE_OF_FOLDER, ElmoConfig, require, save_code, write_whole
from .layers_elmo import (
    BiLM,
    BiLMState,
    CharacterCNN,
    LinearMix,
    ScalarMix,
    WordEmbedding,
    any_of_word,
    check_shape,
    checked_mask,
    checked_words,
    embed_distinct,
    may_depend_on,
    pooling_of,
)
from .scan_elmo import is_hooked

try:
    from transformers.conversion_mapping import register_checkpoint_conversion_mapping
    from transformers.core_model_loading import ConversionOps, WeightConverter
except ImportError:  # without them, weights of earlier versions, whose mixes have a scale `()`, are refused
    register_checkpoint_conversion_mapping = None
    ConversionOps = object

logger = logging.get_logger(__name__)

# Every config names these files, but `modeling_elmo.py` does not import them, and transformers copies only imported
# files; so `save_pretrained` copies them.
HEAD_FILES = ("heads_elmo.py", "language_model_elmo.py")
# Files for sentence-transformers: a text's vector is `pooler_output`. Without these files, it would average
# `last_hidden_state`, boundaries included.
READER = "sentence_transformers.base.modules.transformer.Transformer"
VECTOR = {"method": "forward", "method_output_name": "pooler_output"}
SENTENCE_FILES: dict[str, Any] = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": READER}],
    "sentence_bert_config.json": {"modality_config": {"text": VECTOR}, "module_output_name": "sentence_embedding"},
    "config_sentence_transformers.json": {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
}
# Arguments of `save_pretrained` for pushing.
PUSHING = {
    "push_to_hub",
    "repo_id",
    "commit_message",
    "commit_description",
    "private",
    "token",
    "create_pr",
    "revision",
    "tags",
}


def can_return_tuple(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a model's `forward` the argument `return_dict`: with False, here or in the config, it returns a tuple.

    transformers has such a function under a name that it does not document.
    """

    @functools.wraps(forward)
    def forward_or_tuple(
        self: PreTrainedModel, *args: object, return_dict: bool | None = None, **kwargs: object
    ) -> Any:
        output = forward(self, *args, **kwargs)
        if return_dict is None:
            return_dict = getattr(self.config, "return_dict", True)
        if return_dict or isinstance(output, tuple):
            return output
        return output.to_tuple()

    return forward_or_tuple


class HasState:
    """An output with the state after a batch, detached from the graph, for the next call.

    transformers' pipelines split a batch along the first axis of each field. The first axis of the state's tensors is
    the layer, so they are stored transposed: `state_hidden` `(B, L, 2P)` and `state_cell` `(B, L, 2H)`.
    """

    state_hidden: Tensor | None
    state_cell: Tensor | None

    @property
    def state(self) -> BiLMState | None:
        """The state to pass to a model; views of the two fields."""
        if self.state_hidden is None or self.state_cell is None:
            return None
        return BiLMState(self.state_hidden.transpose(0, 1), self.state_cell.transpose(0, 1))


@dataclass
class ElmoModelOutput(HasState, ModelOutput):
    """The output of `ElmoModel`; all outputs per word are zero on padding.

    Attributes:
        last_hidden_state: `(B, T, 2P)`, the ELMo vectors: the first scalar mix of all layers.
        pooler_output: `(B, 2P)`, the mean or maximum (the config's `pooling`) of the ELMo vectors of a text's words,
            without `<S>`, `</S>` and padding; zero for a text without words. With `inputs_embeds`, boundaries are not
            recognised and count as words.
        representations: `(B, R, T, 2P)`, all R = `num_output_representations` mixes; the first is `last_hidden_state`.
        token_embeddings: `(B, T, P)`, the context-free word vectors.
        state_hidden: `(B, L, 2P)`, see `HasState`.
        state_cell: `(B, L, 2H)`, see `HasState`.
        hidden_states: with `output_hidden_states=True`, L+1 tensors `(B, T, 2P)`: the token vector twice, then each
            biLM layer; aligned layers are multiplied by their matrices.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    representations: Tensor | None = None
    token_embeddings: Tensor | None = None
    state_hidden: Tensor | None = None
    state_cell: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    @property
    def elmo_representations(self) -> tuple[Tensor, ...] | None:
        """The R mixes, `(B, T, 2P)` each, under AllenNLP's name."""
        return None if self.representations is None else self.representations.unbind(1)


class UnchangedScale(ConversionOps):
    """Saves the scale of a mix as it is."""

    def convert(
        self, input_dict: dict[str, list[Tensor]], source_patterns: list[str], target_patterns: list[str], **_: Any
    ) -> dict[str, list[Tensor]]:
        """Returns the one tensor of `input_dict` under the one name of `target_patterns`."""
        (tensors,) = input_dict.values()
        return {target_patterns[0]: tensors}


class FittedScale(UnchangedScale):
    """Loads the scale of a mix in the shape of the model's, `(1,)`; a file of an earlier version has `()`."""

    def convert(
        self, input_dict: dict[str, list[Tensor]], source_patterns: list[str], target_patterns: list[str], **place: Any
    ) -> dict[str, list[Tensor]]:
        """As in `UnchangedScale`; `place` has the `model`, and the scale's name in it, `full_layer_name`."""
        unchanged = super().convert(input_dict, source_patterns, target_patterns)
        (scale,) = unchanged[target_patterns[0]]
        if scale.numel() == 1:
            scale = scale.reshape(place["model"].get_parameter(place["full_layer_name"]).shape)
        return {target_patterns[0]: [scale]}

    @property
    def reverse_op(self) -> UnchangedScale:
        """What `save_pretrained` does."""
        return UnchangedScale()


def accept_scales_without_axes() -> None:
    """Makes transformers load the mixes of earlier versions, by every class of ELMo models."""
    if register_checkpoint_conversion_mapping is not None:
        scale = WeightConverter(r"\.scale", ".scale", [FittedScale()])
        register_checkpoint_conversion_mapping(ElmoConfig.model_type, [scale], overwrite=True)


class ElmoPreTrainedModel(PreTrainedModel):
    """Initialisation, loading and saving, shared by every ELMo model."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    # From `**kwargs` in `forward` the Trainer would conclude that the loss is normalised over accumulated batches.
    accepts_loss_kwargs = False
    _no_split_modules = ["CharacterCNN", "WordEmbedding", "BiLMLayer"]
    # A converted biLM has no mix; mixes then start from equal weights, or from the config's.
    _keys_to_ignore_on_load_missing = [r"scalar_mixes\."]

    # For each task, the class of the pipeline, and the Auto class of its model; both are in one file of the folder.
    pipelines: ClassVar[dict[str, tuple[type, str]]] = {}

    # The package sets these; they are None in code that a folder brings. `keep_packed` takes a model; `complete_card`
    # takes a folder that is being pushed, and its name on the Hub.
    keep_packed: ClassVar[Callable[[nn.Module], None] | None] = None
    complete_card: ClassVar[Callable[[Path, str], None] | None] = None

    def __init__(self, config: ElmoConfig, *args: Any, **kwargs: Any) -> None:
        """Validates `config` again, because `from_pretrained(..., field=value)` changes it after construction."""
        config.validate()
        super().__init__(config, *args, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Loads a model from safetensors files, like every transformers model.

        The argument `scalar_mix_weights` replaces the weights of the checkpoint's mixes and sets every scale to 1; a
        linear mix ignores it.
        """
        accept_scales_without_axes()
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **({"use_safetensors": True} | kwargs))
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if model.config.scalar_mix_weights is not None:
            for mix in model.scalar_mixes_of_all():
                mix.set_weights(model.config.scalar_mix_weights)
        # Loading makes every parameter trainable.
        model.set_trainable_parts()
        return loaded

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """Inputs that every model of the class takes: `input_ids` `(3, 5, ...)`, three texts of four words."""
        return {"input_ids": self._dummy_texts()}

    def _dummy_texts(self) -> Tensor:
        """Ids `(3, 5, ...)`: `<S>`, then four times the last word, or a word that repeats the last character."""
        # With word input, `num_characters` is `vocab_size - 1`, the last word.
        ids = torch.full((3, 5, *self.config.id_shape), self.config.num_characters, device=self.device)
        begin = ids[:, 0]
        if self.config.token_encoder == "word_embedding":
            begin.fill_(self.config.bos_token_id)
        else:
            begin[:, 1] = self.config.bos_token_id
        if self.config.num_input_words > 0:  # the last id is a word's
            ids[..., -1] = self.config.vocab_size - 1
        return ids

    def layers_wanted(self, layers: Sequence[Tensor], is_asked: bool | None) -> tuple[Tensor, ...] | None:
        """The layers for an output's `hidden_states`; None unless the argument, or else the config, requests them."""
        if is_asked is None:
            is_asked = self.config.output_hidden_states
        return tuple(layers) if is_asked else None

    def scalar_mixes_of_all(self) -> list[ScalarMix]:
        """All scalar mixes of the model."""
        return [module for module in self.modules() if isinstance(module, ScalarMix)]

    def set_trainable_parts(self) -> None:
        """Sets `requires_grad` from the config; call it again after changing the config."""
        for mix in self.scalar_mixes_of_all():
            mix.requires_grad_(self.config.scalar_mix_trainable)

    def pack(self) -> None:
        """Keeps a copy of large weights for more speed, as `kernels/packing.py` of the package describes.

        Raises:
            ImportError: if this is code that a folder brings.
        """
        keep_packed = type(self).keep_packed
        if keep_packed is None:
            raise ImportError(f"`pack` needs {ELMO_HF}: import `elmo_hf` before the model is loaded.")
        keep_packed(self)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves like every transformers model, with this package's code; the config names our pipelines.

        The model's config loses `scalar_mix_weights`, which would replace the checkpoint's mixes at loading.

        Raises:
            FileNotFoundError: if the model is of a folder's code, and the heads' code is out of reach.
            ValueError: if weights are quantised, or of a variant that is to be pushed.
        """
        if getattr(self.config, "quantization_config", None) is not None:
            raise ValueError(
                "quantised weights are not saved: save the float32 model, and quantise it at each loading."
            )
        pushing = {name: kwargs.pop(name) for name in PUSHING & kwargs.keys()}
        must_push = pushing.pop("push_to_hub", False)
        variant = kwargs.get("variant")
        legal = "None with `push_to_hub=True`: a repository's card describes the weights without a variant"
        require(not must_push or variant is None, "variant", legal, variant)
        is_main_process = kwargs.get("is_main_process", True)
        is_adapter = getattr(self, "_hf_peft_config_loaded", False)
        if is_main_process and not is_adapter:
            self._save_files_beside(Path(save_directory))
        # Weights in the config would replace the checkpoint's mixes at loading.
        self.config.scalar_mix_weights = None
        self.config.custom_pipelines = {
            task: {"impl": f"{AUTO_MAP[auto_class].split('.')[0]}.{pipeline.__name__}", "pt": [auto_class]}
            for task, (pipeline, auto_class) in self.pipelines.items()
        }
        written = dict(kwargs)
        if kwargs.get("state_dict") is not None:
            written["state_dict"] = dict(kwargs["state_dict"])  # transformers empties what it writes
        super().save_pretrained(save_directory, **written)
        if is_main_process and not is_adapter:
            _let_readers_of_config_read_weights(Path(save_directory))
        if must_push and is_main_process:
            repo_id = pushing.pop("repo_id", os.path.basename(save_directory))
            self._push(repo_id, kwargs, pushing)

    def _push(self, name: str, saving: dict[str, Any], pushing: dict[str, Any]) -> None:
        """Pushes what `save_pretrained` writes with the arguments `saving`.

        transformers' own push leaves out the files that it did not write, so we call `push_to_hub`. That saves again,
        without `saving`, so we call it on a copy whose `save_pretrained` has these arguments.
        """
        if "max_shard_size" in saving:
            pushing["max_shard_size"] = saving["max_shard_size"]
        model = copy.copy(self)  # with the same weights
        model.save_pretrained = functools.partial(self.save_pretrained, **saving)  # type: ignore[method-assign]
        model.push_to_hub(name, **pushing)

    def _save_files_beside(self, folder: Path) -> None:
        """Saves code and the files for sentence-transformers; a folder's own code copies those it was loaded with."""
        if not IS_CODE_OF_FOLDER:
            save_code(folder)
            for name, content in SENTENCE_FILES.items():
                if not (folder / name).exists():  # one that exists may be the user's
                    write_whole(folder / name, f"{json.dumps(content, indent=2)}\n".encode())
            return
        paths = self._files_of_source()
        self._register()
        folder.mkdir(parents=True, exist_ok=True)
        save_code(folder)  # this only removes old checksums: transformers copies the code of the class
        for path in paths:
            if not path.parent.samefile(folder):
                shutil.copy(path, folder)

    def _register(self) -> None:
        """Lets transformers copy the code of a class that no Auto class loaded, as `model.elmo` of a task model."""
        classes = {name.split(".")[1]: auto_class for auto_class, name in AUTO_MAP.items()}
        name = type(self).__name__
        if getattr(self, "_auto_class", None) is None and name in classes:
            self.register_for_auto_class(classes[name])

    def _files_of_source(self) -> list[Path]:
        """The files of the source's folder that transformers does not copy, because the class's file imports none.

        Raises:
            FileNotFoundError: if code that the config names is out of reach.
        """
        source, revision = self.name_or_path, getattr(self.config, "_commit_hash", None)
        paths = {name: file_of(source, name, revision) for name in (*HEAD_FILES, *SENTENCE_FILES)}
        class_file = type(self).__module__.rpartition(".")[2] + ".py"  # transformers copies this one
        for name in HEAD_FILES:
            if paths[name] is None and name != class_file:
                raise FileNotFoundError(
                    f"nothing was saved: {name}, whose classes the config names, must be copied from {source!r}, where "
                    "the model was loaded, but it cannot be read there. Set `model.name_or_path` to a folder that has "
                    "it."
                )
        if any(paths[name] is None for name in SENTENCE_FILES) and not os.path.isdir(source):
            logger.warning(
                f"The saved folder lacks {', '.join(SENTENCE_FILES)}, which cannot be read from {source!r}. Without "
                "them, sentence-transformers averages all words, boundaries included, in place of `pooler_output`."
            )
        return [path for path in paths.values() if path is not None]

    def _upload_modified_files(self, working_dir: str, repo_id: str, *args: Any, **kwargs: Any) -> Any:
        """Uploads files; the package's full card replaces a card that transformers wrote."""
        complete_card = type(self).complete_card
        if complete_card is not None:
            complete_card(Path(working_dir), repo_id)
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    def _initialize_weights(self, module: nn.Module, *_: bool) -> None:
        # In custom code, transformers assumes that a module without parameters of its own is loaded, and skips it. Our
        # modules initialise their children's parameters, and the functions of `init` do not change loaded ones, so the
        # flag (`*_`) that says "custom code" is not passed on.
        super()._initialize_weights(module)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        init_parameters = getattr(module, "init_parameters", None)
        if init_parameters is not None:
            init_parameters()
        else:
            # Modules of a task head, and children of ours, which their parent overwrites afterwards.
            super()._init_weights(module)


def _let_readers_of_config_read_weights(folder: Path) -> None:
    """Gives weights the permissions of `config.json`: safetensors writes files that nobody else on a disk may read."""
    permissions = stat.S_IMODE((folder / "config.json").stat().st_mode)
    for weights in folder.glob("model*.safetensors"):
        with contextlib.suppress(OSError):  # a file system without permissions
            weights.chmod(permissions)


def file_of(source: str, name: str, revision: str | None) -> Path | None:
    """A file of a folder, or of a repository of the Hub; None if it is not there or out of reach."""
    if os.path.isdir(source):
        path = Path(source, name)
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(source, name, revision=revision))
    except (OSError, ValueError):  # out of reach; or the path of a folder that is gone
        return None


# Because a config names a pipeline, `pipeline(model=folder)` needs no task. It must be transformers' own class, not a
# subclass here: BERTopic looks for lower-case `pipeline` in the class's full name (`transformers.pipelines...`), and
# without it silently uses its default model. `modeling_elmo.FeatureExtractionPipeline` works because this file imports
# that class. Configs of folders that an earlier version saved have the name below.
ElmoFeatureExtractionPipeline = FeatureExtractionPipeline


class ElmoModel(ElmoPreTrainedModel):
    """The biLM encoder with its scalar mixes."""

    pipelines = {"feature-extraction": (FeatureExtractionPipeline, "AutoModel")}
    # The softmax of a pretraining checkpoint, which embedding does not need.
    _keys_to_ignore_on_load_unexpected = [r"^softmax\."]

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with random weights."""
        super().__init__(config)
        self.token_encoder = CharacterCNN(config) if config.token_encoder == "char_cnn" else WordEmbedding(config)
        self.bilm = BiLM(config)
        if config.layer_mix == "scalar":
            self.scalar_mixes = nn.ModuleList(ScalarMix(config) for _ in range(config.num_output_representations))
        else:
            self.linear_mixes = nn.ModuleList(LinearMix(config) for _ in range(config.num_output_representations))
        self.dropout = nn.Dropout(config.representation_dropout)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The character table, or the word table."""
        return self.token_encoder.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replaces the character table, or the word table."""
        self.token_encoder.embedding = value

    @property
    def mixes(self) -> nn.ModuleList:
        """The R mixes, scalar or linear."""
        return self.scalar_mixes if self.config.layer_mix == "scalar" else self.linear_mixes

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        state: BiLMState | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ElmoModelOutput:
        """Embeds a batch of texts.

        Args:
            input_ids: character ids `(B, T, C)`, or `(B, T, C + 1)` with the word's id last if the model has word
                vectors too; word ids `(B, T)` for a word-embedding model; any integer type.
            attention_mask: `(B, T)`, 1 on words and boundaries, 0 on padding, which may be on either side. None means 1
                where any id of the word is above 0; with `inputs_embeds`, 1 everywhere.
            state: from the previous batch, or None to start from zeros.
            inputs_embeds: in place of `input_ids`, word vectors `(B, T, P)`, or character embeddings `(B, T, C, E)`
                if the model reads only characters.
            output_hidden_states: whether to return all layers; None: as in the config.
            **kwargs: `return_dict=False` for a plain tuple; others are ignored, as in every transformers model.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if both or neither of `input_ids` and `inputs_embeds` are given, a shape is wrong, the ids' type
                is too small for the model's largest id, or, on a CPU, an id is out of range.
        """
        require(input_ids is None or inputs_embeds is None, "input_ids", "None with `inputs_embeds`", input_ids)
        if inputs_embeds is None:
            ids, mask = checked_words(input_ids, attention_mask, self.config)
            token_embeddings = self.embed_ids(ids, mask)
            is_text = mask & ~self.boundaries(ids)
        else:
            token_embeddings, mask = self.embed_embeds(inputs_embeds, attention_mask)
            is_text = mask

        if self._may_read_in_pieces(mask, output_hidden_states):
            mixed, next_state = self.bilm.read_in_pieces(
                lambda part: token_embeddings[:, part], mask.shape[1], self._mix_all, state
            )
            layers = []
            representations = mixed.transpose(0, 1)
        else:
            layers, next_state = self.bilm(token_embeddings, mask, state)
            representations = torch.stack(self.mix(layers, mask), dim=1)
        vectors = representations[:, 0]
        return ElmoModelOutput(
            last_hidden_state=vectors,
            pooler_output=self.pool(vectors, is_text),
            representations=representations,
            token_embeddings=token_embeddings,
            state_hidden=next_state.hidden.transpose(0, 1),
            state_cell=next_state.cell.transpose(0, 1),
            hidden_states=self.layers_wanted(layers, output_hidden_states),
        )

    def embed_words(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The context-free word vectors `(B, T, P)` and the mask `(B, T)`; arguments and errors as in `forward`."""
        ids, mask = checked_words(input_ids, attention_mask, self.config)
        return self.embed_ids(ids, mask), mask

    def embed_ids(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Maps ids and mask of `checked_words` to word vectors `(B, T, P)`, zero on padding; runs equal words once."""
        if is_hooked(self.token_encoder.embedding) and ids.dim() == 3 and self.config.num_input_words == 0:
            # Hooks, such as captum's, get the characters of all words in their places, `(B, T, C, E)`.
            return self.embed_embeds(self.token_encoder.embedding(ids), mask)[0]
        return embed_distinct(self.token_encoder, ids, mask)

    def mix(self, layers: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, ...]:
        """The representations `(B, T, 2P)` of L+1 layers, with their dropout; `mask` `(B, T)` is True on words."""
        return tuple(self.dropout(mix(layers, mask)) for mix in self.mixes)

    def pool(self, vectors: Tensor, is_text: Tensor) -> Tensor:
        """One vector for each text, `(B, 2P)`, from `vectors` `(B, T, 2P)` where `is_text` `(B, T)` is True."""
        return pooling_of(self.config.pooling)(vectors, is_text)

    def _may_read_in_pieces(self, mask: Tensor, output_hidden_states: bool | None) -> bool:
        """Whether the texts are long and only their mixes are requested; reading in pieces then saves memory."""
        if not may_depend_on(mask) or mask.shape[1] <= self.bilm.piece_words:
            return False
        return (
            not (self.training or torch.is_grad_enabled())
            and self.layers_wanted((), output_hidden_states) is None
            and all(isinstance(mix, ScalarMix) and mix.layer_norm == "none" for mix in self.mixes)
            and not any(map(is_hooked, [*self.bilm.modules(), *self.mixes]))
            and bool(mask.all())
        )

    def _mix_all(self, layers: list[Tensor]) -> Tensor:
        """The representations `(R, B, T, 2P)` of L+1 layers without padding."""
        return torch.stack(self.mix(layers, layers[0].new_ones(layers[0].shape[:2], dtype=torch.bool)))

    def boundaries(self, input_ids: Tensor) -> Tensor:
        """`(B, T)`, True on `<S>` and `</S>`, whose ids occur in no other word."""
        return self.begins(input_ids) | any_of_word(input_ids == self.config.eos_token_id)

    def begins(self, input_ids: Tensor) -> Tensor:
        """`(B, T)`, True on `<S>`."""
        return any_of_word(input_ids == self.config.bos_token_id)

    def embed_embeds(self, inputs_embeds: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Word vectors `(B, T, P)` of `forward`'s `inputs_embeds`, zero on padding, and the mask `(B, T)`."""
        encoder = self.token_encoder
        shape = getattr(inputs_embeds, "shape", ())
        character_shape = (self.config.max_word_length, self.config.char_embedding_size)
        are_characters = self.config.num_input_words == 0 and shape[2:] == character_shape
        if isinstance(encoder, CharacterCNN) and are_characters:
            inputs_embeds = encoder.encode(inputs_embeds.flatten(0, 1)).unflatten(0, shape[:2])
        check_shape("inputs_embeds", inputs_embeds, ("batch", "words", self.config.projection_size))
        mask = checked_mask(attention_mask, inputs_embeds.new_ones(inputs_embeds.shape[:2], dtype=torch.bool))
        return inputs_embeds.masked_fill(~mask.unsqueeze(-1), 0), mask
