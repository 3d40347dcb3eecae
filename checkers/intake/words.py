"""Which words a file must hold for anything in it to be governed: most files hold none, and are passed over unread.

A site spells the name of what it uses: the API's own (``run``), or one that the project gave it. The first are the
catalogue's. The second are learned: a file that gives something governed a name holds the governed name itself, so it
is analysed, and what it says (``hot`` names) makes other files worth reading. That repeats until nothing new is
learned. A word is looked for where it can stand: ``run`` of ``subprocess`` behind a dot in a file that may know that
module, or as a name that was imported; a method behind a dot once its class may have been made anywhere in the tree.

The test is one-sided: it may keep a file for nothing, and loses none (see ``docs/architecture.md``).
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import msgspec

from checkers.catalog import Catalog, Form
from checkers.facts.hot import Hits
from checkers.facts.interest import ACCESSORS

IMPORTED = "<"
"""Before a word: some ``from … import`` of the file names it."""
ATTRIBUTE = "."
"""Before a word: it stands behind a dot."""
QUOTED = '"'
"""Before a word: a string of the file ends in it, and the file reaches names by strings."""
MUST = "must"
"""The sign of a file that has to be analysed whatever counts in it."""

_ACCESS = frozenset({*ACCESSORS, ".__dict__", ".attrgetter", ".import_module", ".modules", ".__import__"})
"""Words that reach a name by a string."""

_IDENTIFIERS = bytes(c if (chr(c).isalnum() and c < 128) or c in b"_." or c >= 128 else 32 for c in range(256))
_NAMES = _IDENTIFIERS.replace(b".", b" ")
_FEW = 8
"""Words for which it is faster to search the text than to split it."""
_IMPORT = re.compile(rb"import(?!\w)[ \t]*(\((?:[^)#]|#[^\r\n]*)*\)|(?:[^\\\r\n;#]|\\\r?\n)*)")
_FROM = re.compile(rb"\bfrom\b[ \t\\\r\n]*([.\w \t]+?)[ \t\\\r\n]*\Z")
_LONE_DOT = re.compile(rb"\.(?:[ \t\r\n]|\\(?=\r?\n))+([^\W\d]\w*)")
_COMMENT_BEHIND_DOT = re.compile(rb"\.[ \t]*#")
_ODD_ACCESS = re.compile(
    rb"(?:(?:getattr|import_module|__import__|attrgetter)\s*\(|"
    rb"(?:(?:globals|locals|vars)\s*\([^)\n]*\)|__dict__|modules)\s*(?:\[|\.\s*get\s*\())"
    rb"(?:[^()\[\]\\]|\([^()]*\)|\[[^\[\]]*\])*?(?:\\|[\w.][\"']\s*[rRuU]?[\"']|(?<![\"'])[\"']{2}\s*[rRuU]?[\"']\w)"
)
"""Access by a string that is not spelled out."""
_NAMED_ANEW = re.compile(
    rb"(?:import_module|__import__)\s+as\b|=\s*(?:[\w.]+\.)?(?:import_module|__import__)\s*(?:$|[#;])", re.MULTILINE
)
"""An import by a string under another name."""
_BY_STRING = re.compile(rb"(?:import_module|__import__|modules)\s*[(\[]([^)\]]*)")
_STRING = re.compile(rb"[\"']([\w.]+)[\"']")
_NAME = re.compile(rb"[^\W\d]\w*|\*")


class Vocabulary(msgspec.Struct, frozen=True):
    """What is looked for, whatever the tree holds: made from the catalogue and the request."""

    functions: dict[str, frozenset[str]]
    """Last components of APIs that are had from a module, and the top-level names of those modules."""
    methods: dict[str, frozenset[str]]
    """Last components of APIs that are had from a class or its instances, and those classes."""
    makers: dict[str, dict[str, frozenset[str]]]
    """By top-level name: what is had from its modules and is, or gives, one of the classes that have APIs."""
    leads: dict[str, frozenset[str]]
    """Classes that are had from a class: its bases, and what its methods and attributes give."""
    modules: dict[str, frozenset[str]]
    """Components of the modules that hold the functions, and their top-level names."""
    contagious: frozenset[str]
    """Top-level names of libraries whose objects are called under any name."""
    always: frozenset[str]
    """Words, with their dot, that count in every file."""
    builtins: frozenset[str]
    """Names of builtins that are governed or that give access to others."""
    keywords: frozenset[str]
    """Keyword arguments that make a call a site."""


def vocabulary(catalog: Catalog, declared: Iterable[str], always: Iterable[str]) -> Vocabulary:
    """The vocabulary of a whole catalogue; ``declared`` are names, ``always`` words that count everywhere."""
    functions, methods = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    makers = defaultdict[str, dict[str, set[str]]](lambda: defaultdict(set))
    leads, modules = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    words = {*(_ACCESS - {".modules"}), *always}
    functions["modules"].add("sys")
    for name in declared:
        words |= {_leaf(name), ATTRIBUTE + _leaf(name)}
    keywords, contagious = set[str](), set[str]()
    for entry in catalog.entries:
        owner = entry.name.rpartition(".")[0]
        if entry.form is Form.KEYWORD:
            keywords.add(entry.keyword or "")
            continue
        if _leaf(entry.name) == "__call__":
            contagious.add(owner)
        is_method = entry.form is Form.METHOD or _is_class(catalog, owner)
        for spelled in catalog.spellings_of(entry.name):
            if is_method:
                methods[_leaf(spelled)].add(owner)
                continue
            root = _root(spelled)
            functions[_leaf(spelled)].add(root)
            for component in spelled.split(".")[:-1]:
                modules[component].add(root)
            if root == "builtins":
                words.add(_leaf(spelled))
    for facts in catalog.all_facts:
        given = {*facts.bases, *facts.returns_by_argument.values(), *facts.members.values()}
        given |= {name for name in (facts.returns, facts.decorates) if name is not None}
        if facts.is_class:
            given.add(facts.name)
        owner = facts.name.rpartition(".")[0]
        if facts.is_class:
            leads[facts.name] |= given
        if _is_class(catalog, owner):
            leads[owner] |= given
            continue
        for spelled in catalog.spellings_of(facts.name):
            made = makers[_root(spelled)]
            made[_leaf(spelled)] |= given
            for member in facts.members:
                made[_leaf(spelled) if member == "*" else member] |= given
            for component in spelled.split(".")[:-1]:
                modules[component].add(_root(spelled))
    return Vocabulary(
        functions={leaf: frozenset(roots) for leaf, roots in functions.items()},
        methods={leaf: frozenset(classes) for leaf, classes in methods.items()},
        makers={root: {leaf: frozenset(made) for leaf, made in of.items()} for root, of in makers.items()},
        leads={name: frozenset(to) for name, to in leads.items()},
        modules={name: frozenset(roots) for name, roots in modules.items()},
        contagious=frozenset(
            root for root, of in makers.items() if any(contagious & _closure(leads, made) for made in of.values())
        ),
        always=frozenset(words),
        builtins=frozenset({*ACCESSORS, *(leaf for leaf, roots in functions.items() if "builtins" in roots)}),
        keywords=frozenset(keywords),
    )


class Glance(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a look at the bytes of one file tells."""

    words: tuple[str, ...]
    """Words of the vocabulary, and learned ones, that stand in it; with their dot, and once more as imported."""
    roots: tuple[str, ...]
    """Top-level names of the catalogue that it imports."""
    signs: tuple[str, ...]
    """What it tells of the tree, see :class:`Known`."""
    has_star: bool
    """It has a star import: then any name may be an imported one."""


def glance(data: bytes, sought: Vocabulary, wanted: frozenset[bytes], *, must: bool = False) -> Glance:
    """Look for the words ``wanted`` (see :func:`wanted_words`) in the UTF-8 bytes of a source.

    ``must``: it has to be analysed whatever counts in it.
    """
    dotted = data.translate(_IDENTIFIERS).split()
    found = _words(data, dotted, wanted)
    if _ODD_ACCESS.search(data) is not None:
        found |= {kind + word.decode() for word in wanted for kind in ("", ATTRIBUTE, IMPORTED, QUOTED)}
    found -= {name for name in sought.builtins.intersection(found) if _as_value(name).search(data) is None}
    imports = _Imports(data, sought)
    found |= {IMPORTED + name for name in imports.names if name.encode() in wanted}
    roots = imports.roots
    if not found.isdisjoint(_ACCESS):
        found |= _quoted(data, found)
        roots |= {name for name in _named_modules(data) if name in sought.makers or name in sought.modules}
    signs = {f"root:{root}" for root in roots} | imports.signs
    for root in (*roots, "builtins"):
        for leaf, classes in sought.makers.get(root, {}).items():
            if root in imports.stars or leaf in found or ATTRIBUTE + leaf in found:
                signs |= {f"class:{name}" for name in classes}
    counts = [(name, dotted.count(name.encode()) - told) for name, told in imports.modules.items()]
    is_handed = any(count > 0 for _, count in counts)  # a module that may be given another name
    if must or is_handed:
        signs.add(MUST)
    return Glance(tuple(sorted(found)), tuple(sorted(roots)), tuple(sorted(signs)), imports.has_star)


@cache
def _as_value(name: str) -> re.Pattern[bytes]:
    """A builtin where it may be read: no attribute, no string of its own, no keyword argument."""
    return re.compile(rb"(?<![\w.\"'])%s(?![\w\"'])(?!\s*=(?!=))" % name.encode())


def _quoted(data: bytes, words: Iterable[str]) -> set[str]:
    names = [word for word in words if word[0] not in (ATTRIBUTE, IMPORTED)]
    return {QUOTED + name for name in names if f'{name}"'.encode() in data or f"{name}'".encode() in data}


def _named_modules(data: bytes) -> Iterator[str]:
    """Top-level names of modules that are imported by a string."""
    told = [data] if _NAMED_ANEW.search(data) is not None else _BY_STRING.findall(data)
    for strings in told:
        for string in _STRING.findall(strings):
            yield string.decode("utf-8", "replace").partition(".")[0]


def look_for(data: bytes, wanted: frozenset[bytes]) -> tuple[str, ...]:
    """Which of a few words ``wanted`` stand in the UTF-8 bytes of a source; see :class:`Glance`."""
    if len(wanted) < _FEW:
        present = frozenset(word for word in wanted if word in data)
    else:
        present = wanted.intersection(data.translate(_NAMES).split())
    if not present:
        return ()
    found = _words(data, data.translate(_IDENTIFIERS).split(), present)
    found |= _quoted(data, found)
    names = {name for told in _import_statements(data) for name in _NAME.findall(told[1])}
    return tuple(sorted(found.union(IMPORTED + name.decode() for name in present & names)))


def plain(text: str) -> bytes:
    """What to look at instead of the bytes of a text: UTF-8, identifiers as Python compares them (NFKC)."""
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    return text.encode("utf-8", "replace")


def wanted_words(sought: Vocabulary, learned: Iterable[str] = ()) -> frozenset[bytes]:
    """All words to look for, without their dots."""
    words = {*sought.functions, *sought.methods, *sought.modules, *sought.keywords, *sought.makers, *learned}
    words |= {word.lstrip(ATTRIBUTE) for word in (*sought.always, *_ACCESS)}
    words |= {leaf for of in sought.makers.values() for leaf in of}
    return frozenset(word.encode() for word in words)


def _words(data: bytes, dotted: list[bytes], wanted: frozenset[bytes]) -> set[str]:
    unique = b" ".join(set(dotted))
    found = {word.decode() for word in wanted.intersection(unique.replace(b".", b" ").split())}
    behind = {word[1:] for word in unique.replace(b".", b" .").split() if word[:1] == b"."}
    behind |= _behind_lone_dots(data, dotted)
    attributes = {ATTRIBUTE + word.decode() for word in wanted.intersection(behind)}
    return found | attributes


def _behind_lone_dots(data: bytes, dotted: list[bytes]) -> set[bytes]:
    """Words that stand behind a dot and white space: ``x.\\n    run()``."""
    if _COMMENT_BEHIND_DOT.search(data) is not None:
        return {*dotted}
    return {*_LONE_DOT.findall(data)}


class _Imports:
    """The import statements of a source, and whatever looks like one."""

    def __init__(self, data: bytes, sought: Vocabulary) -> None:
        self.roots: set[str] = set()
        self.names: set[str] = set()
        """Imported from some module."""
        self.modules: dict[str, int] = {}
        """Names that may be modules with functions of the catalogue, and how often imports spell them."""
        self.stars: set[str] = set()
        self.signs: set[str] = set()
        self.has_star = False
        self._sought = sought
        for module, told in _import_statements(data):
            if module is None:
                self._plain(told)
            else:
                self._from(module, told)

    def _plain(self, told: bytes) -> None:
        for part in told.split(b","):
            words = part.split()
            if not words:
                continue
            module = words[0].decode("utf-8", "replace")
            root = module.partition(".")[0]
            if root in self._sought.makers or root in self._sought.modules:
                self.roots.add(root)
                bound = words[2].decode("utf-8", "replace") if len(words) > 2 and words[1] == b"as" else root
                self._module(bound, root, plainly="." not in module)

    def _from(self, module: bytes, told: bytes) -> None:
        root = module.partition(b".")[0].decode("utf-8", "replace")
        known = root in self._sought.makers or root in self._sought.modules
        if known:
            self.roots.add(root)
        names = [name.decode("utf-8", "replace") for name in _NAME.findall(told)]
        if "*" in names:
            self.has_star = True
            if known:
                self.stars.add(root)
                self.signs.add(f"star:{root}")
        self.names.update(names)
        for position, name in enumerate(names):
            if known and name in self._sought.modules and names[position - 1 : position] != ["as"]:
                is_renamed = names[position + 1 : position + 2] == ["as"] and position + 2 < len(names)
                self._module(names[position + 2] if is_renamed else name, name, plainly=not is_renamed)

    def _module(self, bound: str, name: str, *, plainly: bool) -> None:
        self.modules[bound] = self.modules.get(bound, 0) + (bound != name or plainly)
        if bound not in self._sought.modules:
            self.signs |= {f"module:{root}:{bound}" for root in self._sought.modules.get(name, ())}


def _import_statements(data: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """What stands behind ``import``, and the module before it where there is one."""
    for match in _IMPORT.finditer(data):
        start = match.start()
        behind = data[start - 1 : start]
        if start and (behind == b"_" or behind.isalnum()):
            continue
        line = data.rfind(b"\n", 0, start) + 1
        while data[line - 2 : line] == b"\\\n" or data[line - 3 : line] == b"\\\r\n":
            line = data.rfind(b"\n", 0, line - 1) + 1
        before = _FROM.search(data, line, start) if data.find(b"from", line, start) >= 0 else None
        yield (None if before is None else b"".join(before[1].split())), match[1].translate(None, b"()\\")


class Known:
    """What is known of the tree: the union of the signs of its files.

    ``root:R`` it imports something of R · ``class:C`` C may be made · ``star:R`` it imports everything of R ·
    ``module:R:n`` n is a name for a module of R · ``hot:n`` n is a name for something governed · ``wild:n`` the same,
    called under any name · ``gives:n`` n is a name for a function of the project that gives something governed.
    """

    def __init__(self, sought: Vocabulary, signs: Iterable[str]) -> None:
        self.sought = sought
        self.signs = frozenset(signs) - {MUST}
        told = defaultdict[str, set[str]](set)
        for sign in self.signs:
            kind, _, name = sign.partition(":")
            told[kind].add(name)
        self._roots = told["root"]
        self._wild, self._giving = told["wild"], told["gives"]
        self._named = frozenset(told["hot"] | told["wild"] | told["gives"])
        self._modules = {name: set(roots) for name, roots in sought.modules.items()}
        for told_of in told["module"]:
            root, _, name = told_of.partition(":")
            self._modules.setdefault(name, set()).add(root)
        self.learned = self._named.union(self._modules.keys() - sought.modules.keys())
        made = _closure(sought.leads, told["class"])
        behind_dot = {leaf for leaf, classes in sought.methods.items() if classes & made}
        behind_dot |= {leaf for leaf, roots in sought.functions.items() if roots & told["star"]}
        self._always = sought.always | sought.keywords | {ATTRIBUTE + word for word in behind_dot | self._named}
        imported = {leaf for leaf, roots in sought.functions.items() if roots & self._roots} | self._named
        self._imported = frozenset(IMPORTED + leaf for leaf in imported)

    def hits(self, seen: Glance) -> Hits:
        """The words of a file that count: where none does, nothing in it is governed."""
        words = frozenset(seen.words)
        found = set(words & self._always)
        found |= {word[1:] for word in words & self._imported}
        if seen.has_star:
            found |= {word[1:] for word in self._imported if word[1:] in words}
        roots = self._within_reach(seen, words)
        kinds = (ATTRIBUTE,) if words.isdisjoint(_ACCESS) else (ATTRIBUTE, QUOTED)
        for word in words:
            name = word[1:]
            if word[0] not in kinds:
                continue
            if ATTRIBUTE + name in self._always or not roots.isdisjoint(self.sought.functions.get(name, ())):
                found.add(word)
        giving = frozenset(word for word in found if word.lstrip(ATTRIBUTE) in self._giving)
        wild = {word for word in found if word.lstrip(ATTRIBUTE) in self._wild}
        if not self.sought.contagious.isdisjoint(seen.roots):
            named = {word[1:] for word in words if word[0] == IMPORTED}
            wild |= (self.sought.contagious & words) | named
        return Hits(frozenset(found | wild), frozenset(wild), giving)

    def _within_reach(self, seen: Glance, words: frozenset[str]) -> set[str]:
        """Top-level names whose modules the file may have in hand."""
        if seen.has_star:
            return self._roots
        found = set(seen.roots)
        for word in words:
            if word[0] in (ATTRIBUTE, IMPORTED, QUOTED):
                found |= self._modules.get(word[1:], set())
        return found & self._roots


def _closure(leads: Mapping[str, Iterable[str]], names: Iterable[str]) -> set[str]:
    found, todo = set[str](), [*names]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += leads.get(name, ())
    return found


def _is_class(catalog: Catalog, name: str) -> bool:
    facts = catalog.facts(name)
    return facts is not None and facts.is_class


def _leaf(name: str) -> str:
    """``boto3.client:batch`` ends in a class that has no name of its own: no word."""
    return name.rpartition(".")[2]


def _root(name: str) -> str:
    return name.partition(".")[0].partition(":")[0]
