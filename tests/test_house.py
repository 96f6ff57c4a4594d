"""The house rules of the code, each a small function from a path and its text to the offences in it."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from builder import registry

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {"pyproject.toml", "README.md", "Makefile", "conf", "builder", "recipes", "tests", "outputs"}
NAMELESS = {"utils", "common", "helpers", "base", "misc"}
MASKS = "builder/model/mask.py"
# Words of the workshop, not of the work. A pytest scope may be called "session".
WORDS = re.compile(r"""(?<!scope=")\b(?:issues?|sessions?)\b|\b(?:TODO|FIXME)\b|(?<![\w/])/(?:work|tmp)/""", re.I)
HEAVY = {"lightning", "pytorch_lightning", "wandb", "transformers"}
# room -> its folder of YAML, for the rooms that users choose from
CONF = {room: f"conf/model/{room}" for room in ("attention", "ffn", "norm", "position", "block", "residual", "init")}
CONF |= {room: f"conf/model/{room}" for room in ("scaling", "router", "ssm", "recurrent")}
CONF |= {room: f"conf/{room}" for room in ("objective", "optimizer", "schedule", "tokenizer", "data")}

Offences = Iterable[str]
Rule = Callable[[str, str], Offences]


def in_code(path: str) -> bool:
    return path.endswith(".py") and path.startswith(("builder/", "recipes/"))


def nodes(text: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(text))


def opens_with_one_sentence(path: str, text: str) -> Offences:
    """Rule 1: the first line of the module's docstring is one sentence that says what the file is."""
    docstring = ast.get_docstring(ast.parse(text)) or ""
    first = docstring.partition("\n")[0]
    if not first.endswith((".", "?")):
        yield "does not open with a sentence: the first line of its docstring ends in no full stop"
    elif re.search(r"[.!?] [A-Z]", first):
        yield f"opens with more than one sentence: {first!r}"


def is_short(path: str, text: str) -> Offences:
    """Rule 1: a file stays under 300 lines, a recipe under 80."""
    limit, count = 80 if path.startswith("recipes/") else 300, len(text.splitlines())
    if count >= limit:
        yield f"has {count} lines; it must stay under {limit}"


def is_named_for_what_it_holds(path: str, text: str) -> Offences:
    """Rule 1: no drawer where anything may go, neither a file nor a folder."""
    for part in Path(path).with_suffix("").parts:
        if part in NAMELESS:
            yield f"{part!r} says nothing of what is inside"


def room_of(module: str) -> str | None:
    """The room that a dotted module stands in, as the dotted name of its package."""
    parts = module.split(".")
    if parts[:2] == ["builder", "components"] and len(parts) > 2:
        return ".".join(parts[:3])
    rooms = (f"builder.{folder.replace('/', '.')}" for folder in registry.ROOMS.values())
    return next((room for room in rooms if f"{module}.".startswith(f"{room}.")), None)


def imported(path: str, text: str) -> Iterator[str]:
    """The dotted names that a file imports, relative ones resolved; `from a import b` gives a.b where b is a module."""
    package = Path(path).parent.parts
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *(node.module or "").split("."))).strip(".")
            for name in (alias.name for alias in node.names):
                place = ROOT.joinpath(*module.split("."), name)
                yield f"{module}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else module


def meets_rooms_at_the_door(path: str, text: str) -> Offences:
    """Rule 2: a room's file imports from another room only what that room's `__init__.py` offers."""
    home = room_of(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for module in imported(path, text) if home else ():
        other = room_of(module)
        if other not in (None, home, module):
            yield f"imports {module}; what it may import is what {other} offers"


def called(node: ast.AST) -> str:
    """The last part of what an expression is called: `name` of name, x.name and x["name"]."""
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Subscript(slice=ast.Constant(value=str(word))):
            return word
    return ""


def has_text(node: ast.AST) -> bool:
    """Whether a string literal stands in it; Python's own `__init__` is no component's name."""
    texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return any(not text.startswith("__") for text in texts)


def chooses_by_method(path: str, text: str) -> Offences:
    """Rule 3: nothing compares a component's name or asks for its config's class, outside the registry."""
    if path == "builder/registry.py":
        return
    for node in nodes(text):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(called(side) == "name" for side in sides) and any(
                    has_text(side) for side in sides if called(side) != "name"
                ):
                    yield f"line {node.lineno}: compares a name with a string"
            case ast.Match(subject=subject, cases=cases) if called(subject) == "name":
                if any(has_text(case.pattern) for case in cases):
                    yield f"line {node.lineno}: matches a name against strings"
            case ast.Call(func=ast.Name(id="isinstance"), args=[first, kind]) if called(first) == "config":
                if called(kind) not in ("Mapping", "dict"):  # plain data is not yet of any kind
                    yield f"line {node.lineno}: asks for the class of a config"


def leaves_masks_to_mask(path: str, text: str) -> Offences:
    """Rule 6: masks are materialised in one place."""
    for node in nodes(text) if path != MASKS else ():
        if isinstance(node, ast.Call) and called(node.func).rstrip("_") in ("tril", "triu"):
            yield f"line {node.lineno}: calls {called(node.func)}; only {MASKS} makes masks"


def says_what_it_offers(path: str, text: str) -> Offences:
    """Section 4: public functions and classes of builder/ have docstrings."""
    for node in ast.parse(text).body if path.startswith("builder/") else ():
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ):
            yield f"line {node.lineno}: {node.name} has no docstring"


def speaks_of_the_work(path: str, text: str) -> Offences:
    """No word of how the code came about, no path of one machine, nothing left to do."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in WORDS.finditer(line):
            yield f"line {number}: {found[0]!r}"


# rule -> samples that break it: the negative controls
CODE_RULES: dict[Rule, list[tuple[str, str]]] = {
    opens_with_one_sentence: [
        ("builder/x.py", ""),
        ("builder/x.py", "import torch"),
        ("builder/x.py", '"""A title without an end\n\nA sentence."""'),
        ("builder/x.py", '"""One sentence. Another sentence."""'),
    ],
    is_short: [("builder/x.py", "\n" * 300), ("recipes/x.py", "\n" * 80)],
    is_named_for_what_it_holds: [("builder/utils.py", ""), ("builder/common/x.py", "")],
    meets_rooms_at_the_door: [
        ("builder/components/ffn/x.py", "from builder.components.norm.rmsnorm import RMSNorm"),
        ("builder/components/ffn/x.py", "import builder.components.norm.rmsnorm"),
        ("builder/components/ffn/x.py", "from ..norm.rmsnorm import RMSNorm"),
        ("builder/components/ffn/x.py", "from ..norm import rmsnorm"),
        ("builder/components/ffn/__init__.py", "def f():\n    from ..norm.rmsnorm import RMSNorm"),
        ("builder/training/objective/x.py", "from ..optimizer.adamw import AdamW"),
    ],
    chooses_by_method: [
        ("builder/x.py", 'config.name == "gqa"'),
        ("builder/x.py", '"gqa" != name'),
        ("builder/x.py", 'name in ("gqa", "mla")'),
        ("recipes/x.py", 'slot["name"] == "gqa"'),
        ("builder/x.py", 'match config.name:\n    case "gqa" | "mla":\n        pass'),
        ("builder/x.py", "isinstance(config, Config)"),
        ("builder/x.py", "isinstance(self.config, Config)"),
    ],
    leaves_masks_to_mask: [
        ("builder/x.py", "torch.ones(2, 2).tril()"),
        ("builder/x.py", "torch.triu(x, 1)"),
        ("recipes/x.py", "x.triu_()"),
    ],
    says_what_it_offers: [("builder/x.py", "def load(): ..."), ("builder/x.py", "class Spec:\n    x = 1")],
}
TEXT_RULES: dict[Rule, list[tuple[str, str]]] = {
    speaks_of_the_work: [
        ("README.md", "See the issue."),
        ("conf/x.yaml", "path: /tmp/x"),
        ("builder/x.py", "# TODO: later"),
        ("builder/x.py", 'open("/work/x")'),
        ("tests/x.py", "# of the last session"),
    ],
}
CLEAN = '''"""One sentence, e.g. this one."""
from ..norm import RMSNorm
from ...model.mask import Mask
from .other import Other
class GQA:
    """Grouped queries."""
    def forward(self, x): return x if __name__ == "x" and self.name == x.name else x.reissue("/network/")
    def plain(self, config): return isinstance(config, dict) and config.name == "__init__"
'''


def sources() -> dict[str, str]:
    """The text files of the house by their path, hidden folders but .ci and this file itself left out."""
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name in TOP_LEVEL]
    for folder in ("builder", "recipes", "conf", "tests", ".ci"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    texts = {str(path.relative_to(ROOT)): path for path in files if path != Path(__file__)}
    kinds = {".py", ".yaml", ".md", ".toml", ".txt", ""}
    return {name: path.read_text("utf-8") for name, path in sorted(texts.items()) if path.suffix in kinds}


@pytest.mark.parametrize("rule", CODE_RULES | TEXT_RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Rule):
    files = {path: text for path, text in sources().items() if rule in TEXT_RULES or in_code(path)}
    assert files
    offences = [f"{path}: {offence}" for path, text in files.items() for offence in rule(path, text)]
    assert not offences, "\n".join([rule.__doc__ or "", *offences])


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [(rule, *sample) for rule, samples in (CODE_RULES | TEXT_RULES).items() for sample in samples],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_rule_is_seen(rule: Rule, path: str, text: str):
    assert list(rule(path, text))


@pytest.mark.parametrize("rule", CODE_RULES | TEXT_RULES, ids=lambda rule: rule.__name__)
def test_clean_code_passes(rule: Rule):
    assert not list(rule("builder/components/attention/gqa.py", CLEAN))


def without_yaml(names: Iterable[str], folder: Path) -> list[str]:
    return [name for name in names if not (folder / f"{name}.yaml").is_file()]


@pytest.mark.parametrize("room", CONF)
def test_every_component_has_its_yaml(room: str):
    home = ROOT / "builder" / registry.ROOMS[room]
    files = [name for name in registry.names(room) if (home / f"{name}.py").is_file()]
    assert files, f"{home} is empty"
    assert not without_yaml(files, ROOT / CONF[room])


def test_a_missing_yaml_is_seen(tmp_path: Path):
    (tmp_path / "gqa.yaml").touch()
    assert without_yaml(["gqa", "mla"], tmp_path) == ["mla"]


def strangers(paths: Iterable[str]) -> set[str]:
    return {top for path in paths if not (top := path.split("/")[0]).startswith(".")} - TOP_LEVEL


def left_over(paths: Iterable[str]) -> set[str]:
    """What editors and merges leave beside a file."""
    return {path for path in paths if Path(path).suffix in (".orig", ".rej", ".bak", ".swp", ".pyc")}


def test_the_tree_holds_what_the_design_names():
    listing = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    if listing.returncode or not listing.stdout:
        pytest.skip("not a git checkout")
    assert not strangers(listing.stdout.splitlines())
    assert not left_over(listing.stdout.splitlines())


def test_a_stranger_is_seen():
    assert strangers(["README.md", "builder/x.py", ".ci/run", "scripts/x.py"]) == {"scripts"}
    assert left_over(["builder/x.py", "builder/x.py.orig"]) == {"builder/x.py.orig"}


def heavy_after(statement: str) -> set[str]:
    """The slow libraries that a statement imports in a fresh interpreter."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return HEAVY & set(run.stdout.split())


@pytest.mark.parametrize("module", ["builder", "builder.spec"])
def test_the_core_imports_nothing_heavy(module: str):
    assert not heavy_after(f"import {module}")


def test_a_heavy_import_is_seen():
    assert heavy_after("import wandb") == {"wandb"}
