"""Lets an installed program that imports `allennlp` run with the drop-in, where nobody can edit its import lines.

    from elmo_hf.allennlp.installed_programs import register_as_allennlp

    register_as_allennlp()
    import program

Where only an import can be added, `import elmo_hf.allennlp.as_allennlp` makes the call.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from elmo_hf import allennlp

# The modules of AllenNLP from which programs import ELMo, with the names that each then has; packages first.
MODULES = {
    "allennlp": "",
    "allennlp.commands": "",
    "allennlp.commands.elmo": "ElmoEmbedder batch_to_ids _ElmoBiLm DEFAULT_OPTIONS_FILE DEFAULT_WEIGHT_FILE",
    "allennlp.data": "",
    "allennlp.data.token_indexers": "",
    "allennlp.data.token_indexers.elmo_indexer": "ELMoCharacterMapper",
    "allennlp.modules": "Elmo Highway ScalarMix",
    "allennlp.modules.elmo": """
        Elmo ELMoCharacterMapper ElmoLstm Highway ScalarMix _ElmoBiLm _ElmoCharacterEncoder batch_to_ids
        remove_sentence_boundaries
    """,
    "allennlp.modules.elmo_lstm": "ElmoLstm LstmCellWithProjection",
    "allennlp.modules.highway": "Highway",
    "allennlp.modules.lstm_cell_with_projection": "LstmCellWithProjection",
    "allennlp.modules.scalar_mix": "ScalarMix",
    "allennlp.modules.token_embedders": "ElmoTokenEmbedder",
    "allennlp.nn": "",
    "allennlp.nn.util": "remove_sentence_boundaries",
}


def register_as_allennlp() -> None:
    """Registers modules under AllenNLP's names, for imports that come later; a second call changes nothing.

    Raises:
        ImportError: if AllenNLP is installed, or another module or a folder has its name.
    """
    imported = sys.modules.get("allennlp")
    if imported is None:
        _refuse_installed()
    elif _is_of_drop_in(imported):
        return
    else:
        raise ImportError(
            "the drop-in takes AllenNLP's place only where no module has its name, but `allennlp` is imported, "
            f"{imported}: take away what imports it, or import from `elmo_hf.allennlp` and leave this out."
        )
    for name, exported in MODULES.items():
        module = _module(name)
        for exported_name in exported.split():
            setattr(module, exported_name, getattr(allennlp, exported_name))
        sys.modules[name] = module
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)


def _is_of_drop_in(module: ModuleType) -> bool:
    """Whether a module is one that `register_as_allennlp` made; those of other programs may have no spec."""
    spec = getattr(module, "__spec__", None)
    return spec is not None and spec.origin == __name__


def _refuse_installed() -> None:
    """Raises ImportError if Python finds something that it would import as `allennlp`."""
    spec = importlib.util.find_spec("allennlp")
    if spec is None:
        return
    if spec.origin is None:  # no module, but a folder, which Python takes for a package
        folders = dict.fromkeys(spec.submodule_search_locations or [])
        raise ImportError(
            "the drop-in takes AllenNLP's place only where nothing has its name, but there is a folder `allennlp`, at "
            f"{', '.join(folders)}: rename it, or import from `elmo_hf.allennlp` and "
            "leave this out."
        )
    raise ImportError(
        f"the drop-in takes AllenNLP's place only where it is not installed, but it is, at {spec.origin}: "
        "uninstall `allennlp`, or import from `elmo_hf.allennlp` and leave this out."
    )


def _module(name: str) -> ModuleType:
    """An empty module, without a file; a package, so that modules below it can be imported."""
    return importlib.util.module_from_spec(ModuleSpec(name, None, origin=__name__, is_package=True))
