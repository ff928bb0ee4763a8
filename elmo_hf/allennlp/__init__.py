"""AllenNLP's ELMo under its old names, for code that was written against it: change the import line.

    from allennlp.modules.elmo import Elmo, batch_to_ids            ->   from elmo_hf.allennlp import Elmo, batch_to_ids
    from allennlp.modules.token_embedders import ElmoTokenEmbedder  ->   from elmo_hf.allennlp import ElmoTokenEmbedder
    from allennlp.commands.elmo import ElmoEmbedder                 ->   from elmo_hf.allennlp import ElmoEmbedder

Signatures, defaults, shapes and statefulness are those of AllenNLP 2.10 and, for `ElmoEmbedder`, of 0.9; masks are
booleans as in 2.10. The modules and parameters are AllenNLP's: `_elmo_lstm` (`_ElmoBiLm`) with `_token_embedder`
(`_ElmoCharacterEncoder`) and `_elmo_lstm` (`ElmoLstm`), and mixes `scalar_mix_0`, ... (`ScalarMix`), down to each
parameter's name, shape, order and value. So old code reads, replaces, loads, trains and freezes them by name. Their
tensors go to the scans of `ElmoModel`; new code should use `ElmoModel`.

Glossary: B batch, T words of the longest sentence, C = 50 characters a word, P projection, H cell, L layers.

State: as in AllenNLP, the LSTM state of each batch row is kept from call to call, in evaluation too, so a sentence's
vectors depend on earlier calls. With `lstm = elmo._elmo_lstm._elmo_lstm`, `lstm.stateful = False` switches this off,
`lstm.reset_states()` forgets the state, and `lstm._states` is the state.

Deliberate differences:
- There is no sorting: a batch row may have gaps between words, and a batch of empty sentences is valid.
- Vectors are zero on padding in every mode.
- `ElmoEmbedder.embed_file` writes a dataset without words for a blank line.
- Errors are `ValueError` and `ConversionError` in place of `ConfigurationError`.
"""

from .bilm import _ElmoBiLm
from .character_encoder import Highway, _ElmoCharacterEncoder, remove_sentence_boundaries
from .character_ids import ELMoCharacterMapper, batch_to_ids
from .elmo import Elmo, ElmoTokenEmbedder, ScalarMix
from .embedder import ElmoEmbedder
from .folders import from_model, load_folder, save_folder, to_model
from .lstm import ElmoLstm, LstmCellWithProjection
from .pretrained import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE

__all__ = [
    "DEFAULT_OPTIONS_FILE",
    "DEFAULT_WEIGHT_FILE",
    "ELMoCharacterMapper",
    "Elmo",
    "ElmoEmbedder",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "Highway",
    "LstmCellWithProjection",
    "ScalarMix",
    "_ElmoBiLm",
    "_ElmoCharacterEncoder",
    "batch_to_ids",
    "from_model",
    "load_folder",
    "remove_sentence_boundaries",
    "save_folder",
    "to_model",
]
