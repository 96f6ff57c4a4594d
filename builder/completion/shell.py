"""Bash's part: the function that it calls at TAB, and the words of a line."""

from __future__ import annotations

from collections.abc import Sequence

from builder.compose import ROOT
from builder.errors import ArchlabError

from .words import words

FLAGS = ("-sc", "--shell-completion")
"""Hydra's flags for this; its own script knows no `python -m`."""

_SCRIPT = """\
_archlab() {
    local line="${COMP_LINE:0:COMP_POINT}"
    [[ $line == *" -m recipes"* ]] || return
    compopt -o nospace
    local typed="${line##* }" python="${1/#\\~/$HOME}"
    mapfile -t COMPREPLY < <(COMP_LINE=$COMP_LINE COMP_POINT=$COMP_POINT "$python" -m builder.completion 2>/dev/null)
    COMPREPLY=("${COMPREPLY[@]#"${typed%"$2"}"}")  # readline keeps what stands before the last = or :
}
complete -o bashdefault -o default -F _archlab python python3
"""


def answer(arguments: Sequence[str]) -> None:
    """Prints what `-sc install=bash` and `-sc uninstall=bash` ask for; raises ArchlabError for anything else."""
    asked = [word for word in arguments if word not in FLAGS]
    if asked == ["install=bash"]:
        from .knobs import schema

        schema()  # so that the first TAB finds it made
        print(_SCRIPT, end="")
    elif asked == ["uninstall=bash"]:
        print("complete -r python python3; unset -f _archlab")
    else:
        rule = 'only bash can be told; write eval "$(python -m recipes.train -sc install=bash)", or uninstall=bash'
        raise ArchlabError(f"-sc: found {' '.join(asked) or 'nothing'}; {rule}")


def suggest(line: str) -> list[str]:
    """What the last word of a command line, typed so far, may become: it ends in a space where it is whole."""
    typed = line.split()
    word = "" if line.endswith((" ", "\t")) else typed.pop()
    if "-m" not in typed:
        return []
    jobs = [f"recipes.{file.stem}" for file in sorted((ROOT / "recipes").glob("[a-z]*.py"))]
    module, *others = typed[typed.index("-m") + 1 :] or [""]
    if not module:
        return [f"{job} " for job in jobs if job.startswith(word)]
    if module not in jobs or word.startswith("-"):
        return []
    return list(words(word, [other for other in others if not other.startswith("-")], module.removeprefix("recipes.")))
