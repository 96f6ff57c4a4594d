"""Translations from gettext catalogues: what is read of them, and those of an installed package."""

import gettext
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest

from builder import registry
from builder.data.catalogue import read_catalogue
from builder.errors import ArchlabError
from tests.data.runs import config, prepared

PO = r"""# A translator's comment.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

#: file.py:1
msgid "Open \"file\"\t&now"
msgstr "Открыть \"файл\"\t&сейчас"

#, python-format
msgctxt "menu"
msgid "Save %(name)s"
msgstr "Сохранить %(name)s"
msgid "No blank line before"
msgstr "Без пустой строки"

msgid ""
"In several "
"lines\n"
msgstr ""
"В несколько "
"строк\n"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d файл"
msgstr[1] "%d файла"
msgstr[2] "%d файлов"

#, python-format, fuzzy
#| msgid "Closed"
msgid "Close"
msgstr "Закрыто"

msgid "Untranslated"
msgstr ""

#, fuzzy
#~ msgid "Obsolete"
#~ msgstr "Устарело"

msgid "Octal \101 and \\n"
msgstr "Восьмеричное \x41 и \\n"

msgid "Open \"file\"\t&now"
msgstr "Открыть \"файл\"\t&сейчас"
"""
TRANSLATED = [
    ('Open "file"\t&now', 'Открыть "файл"\t&сейчас'),
    ("Save %(name)s", "Сохранить %(name)s"),
    ("No blank line before", "Без пустой строки"),
    ("In several lines\n", "В несколько строк\n"),
    ("%d file", "%d файл"),
    ("Octal A and \\n", "Восьмеричное A и \\n"),
]


def compiled(entries):
    """A .mo file as the manual of GNU gettext draws it."""
    made = sorted((key.encode(), value.encode()) for key, value in entries.items())
    tables, strings, start = b"", b"", 28 + 16 * len(made)
    for column in (0, 1):
        for entry in made:
            tables += struct.pack("<II", len(entry[column]), start + len(strings))
            strings += entry[column] + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, len(made), 28, 28 + 8 * len(made), 0, 0) + tables + strings


def read(**knobs):
    made = config("data", "gettext", **knobs)
    return made.component(made).records()


def test_what_is_translated_in_a_po_file(tmp_path):
    (tmp_path / "x.po").write_text(PO, "utf-8")
    assert read_catalogue(tmp_path / "x.po") == [*TRANSLATED, TRANSLATED[0]]
    assert read(path=str(tmp_path / "x.po")) == TRANSLATED  # each once
    old = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=koi8-r\\n"\nmsgid "tree"\nmsgstr "дерево"\n'
    (tmp_path / "y.po").write_bytes(old.encode("koi8-r"))
    assert read_catalogue(tmp_path / "y.po") == [("tree", "дерево")]


def test_what_is_translated_in_a_mo_file(tmp_path):
    header = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=3; plural=n%3;\n"
    given = {"": header, "menu\4Save": "Сохранить", "a file\0files": "файл\0файла\0файлов", "none": ""}
    (tmp_path / "x.mo").write_bytes(compiled(given))
    assert read_catalogue(tmp_path / "x.mo") == [("a file", "файл"), ("Save", "Сохранить")]


def test_the_catalogues_of_a_language(tmp_path):
    entry = 'msgid "x"\nmsgstr "{}"\n'
    places = {"a/locale/ru/LC_MESSAGES/d.po": 1, "a/locale/de/LC_MESSAGES/d.po": 2, "po/ru.po": 3, "po/d.ru.po": 4,
              "po/be.po": 5, "ru/d.po": 6, "pt-BR/d.po": 7, "ru/readme.txt": 8}  # fmt: skip
    for place, number in places.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(entry.format(number))
    (tmp_path / "ru" / "d.mo").write_bytes(compiled({"": "", "x": "x"}))  # beside its .po
    assert [target for _, target in read(path=str(tmp_path))] == ["1", "4", "3", "6"]
    assert read(path=str(tmp_path), language="pt_br") == [("x", "7")]
    assert read(path=[str(tmp_path / "po" / "be.po"), f"{tmp_path}/po/*.po"]) == [("x", "5"), ("x", "4"), ("x", "3")]
    with pytest.raises(
        ArchlabError, match=r"data\.language: found 'rus', and .* has be, d?e?.*ru[\s\S]*data\.language=ru"
    ):
        read(path=str(tmp_path), language="rus")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.po", b'msgid "a"\nmsgstr "b\n', "line 2 is no line of a .po file"),
        ("x.po", b'"a"\n', "line 1 is no line"),
        ("x.po", b'msgid "\xff"\n', "not utf-8"),
        ("x.po", b'# charset=latin9000\nmsgid "a"\n', "not latin9000"),
        ("x.mo", b"no such magic number", "no .mo file"),
        ("x.mo", compiled({"": "", "a": "b"})[:40], "a damaged .mo file"),
        ("x.po", b'msgid "a"\nmsgstr ""\n', "nothing is translated"),
        ("x.txt", b"", "where no .po or .mo file is"),
    ],
)
def test_what_is_no_catalogue_is_named(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArchlabError) as caught:
        read(path=str(tmp_path / name))
    assert "data.path: found" in str(caught.value) and name in str(caught.value) and told in str(caught.value)


def test_a_package_that_is_not_installed():
    for name in ("package:no_such_package", "package:", "package:a b", "package:gettext"):
        with pytest.raises(ArchlabError, match=f"data.path: found {name!r}, and no such package is installed"):
            read(path=name)


def test_russian_of_an_installed_package(tmp_path):
    """What the standard library reads from the catalogues of JupyterLab's language pack."""
    given = {"path": "package:jupyterlab_language_pack_ru_RU", "language": "ru"}
    pairs = read(**given)
    home = Path(next(iter(find_spec("jupyterlab_language_pack_ru_RU").submodule_search_locations)))
    files = sorted(home.glob("**/ru_RU/LC_MESSAGES/*.mo"))
    assert len(files) > 10
    for file in files:
        known = gettext.GNUTranslations(file.open("rb"))
        keys = [key for key in vars(known)["_catalog"] if isinstance(key, str) and key]
        parts = [key.rpartition("\4") for key in keys]
        said = [known.pgettext(place, key) if place else known.gettext(key) for place, _, key in parts]
        assert {(key, text) for (_, _, key), text in zip(parts, said, strict=True)} <= set(pairs)
    assert len(pairs) == len(set(pairs)) > 2000 and pairs == read(**given)
    data = config("data", "gettext", overlong="drop", **given)
    held = prepared(data, config("tokenizer", "bytes"), train_length=64, cache=tmp_path)
    row = held.val.rows(held.val.every()[:1])
    assert held.kind == "pairs" and len(held.val.every()) > 100
    assert (held.tokenizer.decode(row["source"][0]), held.tokenizer.decode(row["tokens"][0])) in set(pairs)


def test_a_path_may_be_a_list():
    assert registry.find("data", "gettext").Config(name="gettext", path="a") == config("data", "gettext", path=["a"])
