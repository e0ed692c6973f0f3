"""Words that stand for predicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from goffish.errors import InputError
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.checks import check
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.syntax import CgqlError

_OPTION, _BEGIN = "vocabulary", "DETECT Match(vertex:"
#: By word, what it stands for.
Vocabulary = Mapping[str, syntax.Predicate]


def vocabulary_of(name: str, words: Mapping[str, str]) -> Vocabulary:
    """Read what words stand for.

    Parameters
    ----------
    name : str
        Of the vocabulary.
    words : mapping
        Predicates in braces, by word.

    Returns
    -------
    mapping

    Raises
    ------
    InputError
        A name, a word or a predicate is not accepted.

    Examples
    --------
    >>> print(vocabulary_of("social", {"friend": "{type = friend, since > 2000}"})["friend"])
    type = "friend" AND since > 2000
    """
    found: dict[str, syntax.Predicate] = {}
    if not isinstance(words, Mapping) or not words:
        raise InputError(f"vocabulary {name}: accepted are words with predicates such as {{type = friend}}")
    for word in (name, *words):
        if not isinstance(word, str) or not word.isidentifier() or not word.isascii():
            raise InputError(
                f"vocabulary {name!s:.40}: word {word!r:.40}: accepted are letters, digits and _, which do not begin "
                "with a digit"
            )
    for word, text in words.items():
        where = f"vocabulary {name}: word {word}"
        if not isinstance(text, str) or not text.lstrip().startswith("{"):
            raise InputError(f"{where}: {text!r:.40}: must be a text with predicates such as {{type = friend}}")
        try:
            [checked] = check(parse(f"{_BEGIN}{text})"))
            [argument] = checked.query.arguments
        except CgqlError as error:
            raise InputError(f"{where}: {text:.60}: {str(error).partition(': ')[2]}") from None
        except ValueError:
            raise InputError(f"{where}: {text:.60}: accepted is one set of predicates in braces") from None
        assert isinstance(argument, syntax.NamedPredicates)
        parts = argument.predicates.parts
        if not parts or str(checked.query) != f"{_BEGIN}{argument.predicates}) AS {checked.topic}":
            raise InputError(f"{where}: {text:.60}: accepted is one set of predicates in braces, which is not empty")
        found[word] = parts[0] if len(parts) == 1 else syntax.All(parts)
    return found


def expanded(script: syntax.Script, vocabularies: Mapping[str, Vocabulary]) -> syntax.Script:
    """Replace the words of the vocabularies that queries name.

    Parameters
    ----------
    script : Script
    vocabularies : mapping
        By name.

    Returns
    -------
    Script
        Does not depend on vocabularies.

    Raises
    ------
    CgqlError
        There is no such vocabulary.
    """
    return syntax.Script(tuple(_without(part, vocabularies) for part in script.statements))


def _without(part: Any, vocabularies: Mapping[str, Vocabulary]) -> Any:
    """Return a part of a script in which each query has lost its vocabulary, and those in it theirs."""
    if isinstance(part, syntax.Query):
        words = dict(_words(part, vocabularies))
        options = tuple(one for one in part.options if one.name != _OPTION)
        where = tuple(_without(one, vocabularies) for one in part.where)
        part = replace(part, options=options, where=where)
        return replace(part, arguments=_replaced(part.arguments, words), where=_replaced(part.where, words))
    if isinstance(part, syntax.Detects):
        return syntax.Detects(tuple(_without(one, vocabularies) for one in part.queries))
    if isinstance(part, syntax.Temporal) and isinstance(part.of, syntax.Query):
        return replace(part, of=_without(part.of, vocabularies))
    return part


def _words(query: syntax.Query, vocabularies: Mapping[str, Vocabulary]) -> Iterator[tuple[str, syntax.Predicate]]:
    for option in query.options:
        if option.name != _OPTION:
            continue
        given = option.value.value if isinstance(option.value, syntax.Literal) else str(option.value)
        if given not in vocabularies:
            names = ", ".join(vocabularies) or "none"
            raise CgqlError(f"WITH {option}: there is no such vocabulary; choose from {names}", option.at)
        yield from vocabularies[str(given)].items()


def _replaced(part: Any, words: Vocabulary) -> Any:
    if not words or isinstance(part, syntax.Query):  # one in another has its words
        return part
    if isinstance(part, syntax.Bare):
        names = part.operand.names if isinstance(part.operand, syntax.Reference) else ()
        return words.get(names[0], part) if len(names) == 1 else part
    if isinstance(part, tuple):
        return tuple(_replaced(one, words) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{one.name: _replaced(getattr(part, one.name), words) for one in fields(part)})
    return part
