"""The house rules that look at all code together: nothing is said twice, every public method says what it does."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import pytest

from tests.test_house import ROOT, in_code, sources


def repeated(files: dict[str, str], lines: int = 6) -> list[str]:
    """Rule 6: where so many lines of code stand twice to the letter; imports, comments and brackets don't count."""
    met: dict[tuple[str, ...], str] = {}
    found = []
    for path, text in files.items():
        kept = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
        kept = [(n, line) for n, line in kept if len(line) > 3 and not line.startswith(("from ", "import ", "#"))]
        for first in range(len(kept) - lines + 1):
            window = tuple(line for _, line in kept[first : first + lines])
            place = f"{path}:{kept[first][0]}"
            if met.setdefault(window, place) != place:
                found.append(f"{place} says again what {met[window]} says")
    return found


def test_nothing_is_said_twice():
    offences = repeated({path: text for path, text in sources().items() if in_code(path)})
    assert not offences, "\n".join(offences)


def test_what_is_said_twice_is_seen():
    body = "\n".join(f"    x = f({number}, x)" for number in range(6))
    assert repeated({"builder/a.py": body, "builder/b.py": f"def g(x):\n{body}"})
    assert not repeated({"builder/a.py": body, "builder/b.py": body.replace("f(3", "h(3")})


def undocumented(module: ModuleType) -> list[str]:
    """Section 4: public methods of a module's public classes without a docstring, but those that a base class has."""
    found = []
    for name, kind in vars(module).items():
        if name.startswith("_") or not inspect.isclass(kind) or kind.__module__ != module.__name__:
            continue
        for method, value in vars(kind).items():
            known = any(method in vars(base) for base in kind.__mro__[1:])
            function = getattr(value, "fget", getattr(value, "func", getattr(value, "__func__", value)))
            own = inspect.isfunction(function) and function.__qualname__ == f"{kind.__qualname__}.{method}"
            if own and not (method.startswith("_") or known or inspect.getdoc(function) or stands_for(function)):
                found.append(f"{module.__name__}.{name}.{method} has no docstring")
    return found


def stands_for(function: Any) -> bool:
    """Whether a function is one of a protocol, which has no body."""
    return inspect.getsource(function).rstrip().endswith("...")


def test_every_public_method_says_what_it_does():
    apart = ("builder.experiments.rank", "builder.plugins")  # what runs as it is imported, and what Hydra finds
    names = [found.name for found in pkgutil.walk_packages([str(ROOT / "builder")], "builder.")]
    modules = [importlib.import_module(name) for name in names if not name.startswith(apart)]
    offences = [offence for module in modules for offence in undocumented(module)]
    assert len(modules) > 300 and not offences, "\n".join(offences)


def test_a_method_without_a_word_is_seen():
    module = ModuleType("silent")
    vars(module)["__name__"] = "silent"
    exec("class A:\n    def said(self):\n        'Says.'\n    def unsaid(self):\n        return 1", vars(module))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect, "getsource", lambda function: "return 1")
        assert undocumented(module) == ["silent.A.unsaid has no docstring"]
