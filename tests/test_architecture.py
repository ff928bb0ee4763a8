"""Which way imports go between the rooms, that the map names the rooms, and the version."""

import ast
import importlib.metadata
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# From the ground up: a room may import the rooms of the floors below its own. See docs/architecture.md.
FLOORS = """
    text | disk | model | kernels | tasks language_model | heads | folder | pipelines | share | public |
    embedding | training | conversion | stateful | allennlp dropins sklearn spacy | tfhub | cli
""".split("|")
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor.split()}


def imports_of(name: str, path: Path) -> set[str]:
    """Dotted names that a module imports from the package, those inside functions too."""
    return names_in(name, ast.parse(path.read_text(encoding="utf-8")))


def run_time_imports_of(name: str, path: Path) -> set[str]:
    """The same without those that only a type checker sees."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    branches = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    tree.body = [node for node in tree.body if node not in branches]
    return names_in(name, tree)


def names_in(name: str, tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parents = name.split(".")[: -node.level] if node.level else []
            names.add(".".join([*parents, *([node.module] if node.module else [])]))
            names |= {".".join([*parents, *([node.module] if node.module else []), alias.name]) for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {each for each in names if each.startswith("elmo_hf.")}


# What loads a model.
LOADERS = {
    f"elmo_hf.folder.loading.{name}"
    for name in ("load_complete", "load_shared", "load_language_models", "load_for_pretraining")
}
# Every module of the package by its dotted name, the folder `conversion` among them.
MODULES = {
    ".".join([name, *path.relative_to(folder).with_suffix("").parts]): path
    for folder, name in ((ROOT / "elmo_hf", "elmo_hf"), (ROOT / "conversion", "elmo_hf.conversion"))
    for path in folder.rglob("*.py")
}
ARROWS = {name: imports_of(name, path) & MODULES.keys() for name, path in MODULES.items()}
RUN_TIME_IMPORTS = {name: run_time_imports_of(name, path) for name, path in MODULES.items()}


def room_of(name: str) -> str:
    return name.split(".")[1]


def test_every_module_lies_in_a_room() -> None:
    assert {room_of(name) for name in MODULES} == FLOOR_OF.keys() | {"__init__", "__main__"}


def test_rooms_import_only_rooms_of_the_floors_below() -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in ARROWS.items()
        for target in targets
        if room_of(name) != room_of(target) and FLOOR_OF[room_of(target)] >= FLOOR_OF.get(room_of(name), len(FLOORS))
    ]
    assert wrong == []


def reach(name: str) -> set[str]:
    """All modules that are imported with a module when it runs."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        targets = (RUN_TIME_IMPORTS[waiting.pop()] & MODULES.keys()) - reached
        reached |= targets
        waiting += targets
    return reached


def test_whatever_loads_a_model_above_public_gives_it_what_only_the_package_has() -> None:
    """Else a command would embed with a folder's kernels, and a language model would say that it needs the package."""
    above = {name for name in MODULES if FLOOR_OF.get(room_of(name), 0) > FLOOR_OF["public"]}
    loading = {name for name in above if RUN_TIME_IMPORTS[name] & LOADERS}
    assert len(loading) > 5
    assert {name for name in loading if "elmo_hf.public" not in reach(name)} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert len([*TopologicalSorter(ARROWS).static_order()]) == len(MODULES)


def reachable(name: str) -> set[str]:
    """The modules that a module imports, and those that they import."""
    names: set[str] = set()
    new = {name}
    while new:
        new = {target for module in new for target in ARROWS[module]} - names
        names |= new
    return names


def test_modules_above_the_public_names_get_the_packages_kernels_with_their_models() -> None:
    """So the order of imports never decides which kernels compute, and numbers are the same in every process."""
    above = [name for name in MODULES if FLOOR_OF.get(room_of(name), 0) > FLOOR_OF["public"]]
    with_models = [name for name in above if "elmo_hf.model.layers_elmo" in reachable(name)]
    assert [name for name in with_models if "elmo_hf.public" not in reachable(name)] == []
    assert len(with_models) > 10


def test_nothing_is_imported_by_a_string_but_the_public_names() -> None:
    sources = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    by_string = {name for name, source in sources.items() if re.search(r"\bimport_module\(|\b__import__\(", source)}
    assert by_string == {"elmo_hf.__init__"}


def test_the_code_that_travels_names_nothing_of_the_package() -> None:
    travelling = {name for name in MODULES if room_of(name) == "model"}
    assert {target for name in travelling for target in ARROWS[name]} <= travelling


def test_the_map_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folder in ("elmo_hf", "conversion"):
        for room in (path.parent.name for path in (ROOT / folder).glob("*/__init__.py")):
            assert re.search(rf"^\s*{room}/?[\s:]", text, re.MULTILINE), room


def test_changelog_and_metadata_agree_on_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == importlib.metadata.version("elmo-hf")


def test_every_room_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {name.removesuffix(".__init__") for name, path in MODULES.items() if path.name == "__init__.py"}
    assert set(settings["tool"]["setuptools"]["packages"]) - {"elmo_hf.model_cards"} == rooms
