"""Which words a file must hold for anything in it to be governed: most files hold none, and are passed over unread.

A site spells the name of what it uses: the API's own (``run``), or one that the project gave it. The first are the
catalogue's. The second are learned: a file that gives something governed a name holds the governed name itself, so it
is analysed, and what it says (``hot`` names) makes other files worth reading. That repeats until nothing new is
learned. A word is looked for where it can stand: as a name that was imported; ``run`` of ``subprocess`` behind a dot
once the tree imports that module, a method behind a dot once its class may have been made anywhere in the tree.

The test is one-sided: it may keep a file for nothing (see ``docs/architecture.md``).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import msgspec

from checkers.catalog import Catalog, Form
from checkers.facts.hot import ITSELF, Hits
from checkers.facts.interest import ACCESSORS

IMPORTED = "<"
"""Before a word: some ``from … import`` of the file names it."""
ATTRIBUTE = "."
"""Before a word: it stands behind a dot."""
QUOTED = '"'
"""Before a word: a string of the file ends in it, and the file reaches names by strings."""
MUST = "must"
"""The sign of a file that has to be analysed whatever counts in it."""

_MODULES = frozenset({f"{ATTRIBUTE}modules", f"{IMPORTED}modules"})
_ACCESS = frozenset({*ACCESSORS, *_MODULES, ".__dict__", ".attrgetter", ".import_module", ".__import__"})
"""Words that reach a name by a string."""
_ACCESS_NAMES = frozenset(word.lstrip(ATTRIBUTE + IMPORTED) for word in _ACCESS)

_MARKS = f"{IMPORTED}{ATTRIBUTE}{QUOTED}"

_IDENTIFIERS = bytes(c if (chr(c).isalnum() and c < 128) or c in b"_." or c >= 128 else 32 for c in range(256))
_NAMES = _IDENTIFIERS.replace(b".", b" ")
_NAMES_AND_QUOTES = bytes(34 if c in b"\"'" else _NAMES[c] for c in range(256))
_FEW = 8
"""Words for which it is faster to search the text than to split it."""
_IMPORT = re.compile(rb"import(?!\w)[ \t]*(\((?:[^)#]|#[^\r\n]*)*\)|(?:[^\\\r\n;#]|\\\r?\n)*)")
_MIDST = re.compile(rb"[^\s;:\\\xef\xbb\xbf]\s*\Z")
"""What stands before an ``import`` that begins no statement: a comment or a string has it."""
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
    rb"(?:import_module|__import__|modules)\s+as\b|=\s*(?:[\w.]+\.)?(?:import_module|__import__)\s*(?:$|[#;])"
    rb"|[\"'](?:import_module|__import__)[\"']|getattr\([^)]*[\"']modules[\"']",
    re.MULTILINE,
)
"""An import by a string under another name."""
_CLASS = ".__class__"
_TYPE_OF = re.compile(rb"type\s*\((?!\s*self\s*\))(?:[^()]|\([^()]*\))*\)\s*(?:[(\r\n#;]|\Z|(?:if|or|and|else)\b)")
_BASE_OF = re.compile(rb"class\s+\w+\s*\((?:[^()]|\([^()]*\))*?\btype\s*\(")
_CLASS_OF = re.compile(rb"__class__(?<!\bself\.__class__)(?!\w|\s*(?:\.\s*__(?!call__)|is\b|[!=]=))")
"""The class of some object, other than for its name: such a class is called without any word of its own."""
_ITSELF_WORDS = tuple(word.encode() for word in sorted(ITSELF))
_ITSELF = re.compile(rb"(?<!\w)(\w+)\s*\.\s*(?:%s)" % b"|".join(_ITSELF_WORDS))
"""What is itself under another name."""
_BY_STRING = re.compile(rb"(?:import_module|__import__|modules)\s*[(\[]([^)\]]*)")
_STRING = re.compile(rb"[\"']([\w.]+)[\"']")
_CHAIN = re.compile(rb"[\"']([\w.]+\.)\w+[\"']")
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
    words = {*(_ACCESS - _MODULES), _CLASS, *always}
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
    unique = b" ".join({*dotted})
    behind = _behind_lone_dots(data, dotted)
    found = _words(unique, behind, wanted)
    if not found.isdisjoint(_ACCESS_NAMES) and _ODD_ACCESS.search(data) is not None:
        found |= {kind + word.decode() for word in wanted for kind in ("", ATTRIBUTE, IMPORTED, QUOTED)}
    if any(of.search(data) is not None for of in (_TYPE_OF, _BASE_OF, _CLASS_OF)):
        found.add(_CLASS)
    imports = _Imports(data, sought)
    imported = {IMPORTED + name for name in imports.names if name.encode() in wanted}
    quoted = set[str]() if _ACCESS.isdisjoint(found | imported) else _quoted(data, found)
    found -= {name for name in sought.builtins.intersection(found) if _as_value(name).search(data) is None}
    found |= imported
    if not found.isdisjoint(_ACCESS):
        found |= quoted
        named = _named_modules(data)
        imports.roots |= {name for name in named if name in sought.makers or name in sought.modules}
        imports.renamed |= named.intersection(sought.modules)
    imports.renamed.update(_given_on(dotted, unique, behind, found, imports, sought))
    if any(word in data for word in _ITSELF_WORDS):
        imports.renamed.update(name.decode() for name in _ITSELF.findall(data) if name.decode() in sought.modules)
    signs = _signs(found, imports, sought)
    if must:
        signs.add(MUST)
    return Glance(tuple(sorted(found)), tuple(sorted(imports.roots)), tuple(sorted(signs)), imports.has_star)


def _signs(found: set[str], imports: _Imports, sought: Vocabulary) -> set[str]:
    signs = {*(f"root:{root}" for root in imports.roots), *(f"star:{root}" for root in imports.stars)}
    signs |= {f"loose:{name}" for name in imports.renamed}
    in_hand = {*imports.roots, *_in_hand(found, sought), "builtins"}
    for root in sought.makers if imports.has_star else in_hand:
        for leaf, classes in sought.makers.get(root, {}).items():
            if root in imports.stars or leaf in found or ATTRIBUTE + leaf in found:
                signs |= {f"class:{root}:{name}" for name in classes}
    return signs


@cache
def _as_value(name: str) -> re.Pattern[bytes]:
    """A builtin where it may be read: no attribute, no string of its own, no keyword argument."""
    return re.compile(rb"(?<![\w.\"'])%s(?![\w\"'])(?!\s*=(?!=))" % name.encode())


def _quoted(data: bytes, words: Iterable[str]) -> set[str]:
    ends = {*data.translate(_NAMES_AND_QUOTES).replace(b'"', b'" ').split()}
    inside = {part for chain in _CHAIN.findall(data) for part in chain.split(b".")}
    names = [word for word in words if word[0] not in (ATTRIBUTE, IMPORTED)]
    return {QUOTED + name for name in names if b'%s"' % name.encode() in ends or name.encode() in inside}


def _in_hand(words: Iterable[str], sought: Vocabulary) -> set[str]:
    """Top-level names of the modules that a file may have in hand for the ``words`` in it, if the tree has them."""
    return {root for word in words if word[0] in _MARKS for root in sought.modules.get(word[1:], ())}


def _given_on(
    dotted: list[bytes], unique: bytes, behind: set[bytes], words: set[str], imports: _Imports, sought: Vocabulary
) -> Iterator[str]:
    """Names for modules that may be given other names: spelled without an attribute behind them.

    ``unique``: what stands in ``dotted``, once each; ``behind``: words behind a dot and white space.
    """
    chains, unique = unique.split(), unique + b" "
    for word in words:
        name = word.lstrip(_MARKS)
        if name not in sought.modules:
            continue
        spelled = name.encode()
        if word[0] == QUOTED or (word[0] == ATTRIBUTE and spelled in behind):
            yield name
        elif word[0] == ATTRIBUTE and b".%s " % spelled in unique:
            ends = [chain for chain in chains if chain.endswith(b"." + spelled)]
            if any(dotted.count(chain) > imports.paths[chain] for chain in ends):
                yield name
        elif (imports.has_star or name in imports.modules) and dotted.count(spelled) > imports.modules.get(name, 0):
            yield name


def _named_modules(data: bytes) -> set[str]:
    """Top-level names of modules that are imported by a string."""
    told = [data] if _NAMED_ANEW.search(data) is not None else _BY_STRING.findall(data)
    strings = [string.decode("utf-8", "replace") for text in told for string in _STRING.findall(text)]
    return {string.partition(".")[0] for string in strings}


def look_for(data: bytes, wanted: frozenset[bytes]) -> tuple[str, ...]:
    """Which of a few words ``wanted`` stand in the UTF-8 bytes of a source; see :class:`Glance`."""
    if len(wanted) < _FEW:
        present = frozenset(word for word in wanted if word in data)
    else:
        present = wanted.intersection(data.translate(_NAMES).split())
    if not present:
        return ()
    dotted = data.translate(_IDENTIFIERS).split()
    found = _words(b" ".join({*dotted}), _behind_lone_dots(data, dotted), present)
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
    words |= {word.lstrip(ATTRIBUTE) for word in sought.always} | _ACCESS_NAMES
    words |= {leaf for of in sought.makers.values() for leaf in of}
    return frozenset(word.encode() for word in words)


def _words(unique: bytes, behind: set[bytes], wanted: frozenset[bytes]) -> set[str]:
    found = {word.decode() for word in wanted.intersection(unique.replace(b".", b" ").split())}
    behind = behind.union(word[1:] for word in unique.replace(b".", b" .").split() if word[:1] == b".")
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
        self.paths = Counter[bytes]()
        """How often imports spell each name of a module."""
        self.renamed: set[str] = set()
        """Names of modules that are imported under a name which none of the catalogue has."""
        self.stars: set[str] = set()
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
            self.paths[words[0]] += 1
            module = words[0].decode("utf-8", "replace")
            root = module.partition(".")[0]
            if root in self._sought.makers or root in self._sought.modules:
                self.roots.add(root)
                bound = words[2].decode("utf-8", "replace") if len(words) > 2 and words[1] == b"as" else root
                self._module(bound, root, plainly="." not in module)

    def _from(self, module: bytes, told: bytes) -> None:
        self.paths[module] += 1
        root = module.partition(b".")[0].decode("utf-8", "replace")
        known = root in self._sought.makers or root in self._sought.modules
        if known:
            self.roots.add(root)
        names = [name.decode("utf-8", "replace") for name in _NAME.findall(told)]
        if "*" in names:
            self.has_star = True
            if known:
                self.stars.add(root)
        self.names.update(names)
        for position, name in enumerate(names):
            if name in self._sought.modules and names[position - 1 : position] != ["as"]:
                is_renamed = names[position + 1 : position + 2] == ["as"] and position + 2 < len(names)
                self._module(names[position + 2] if is_renamed else name, name, plainly=not is_renamed)

    def _module(self, bound: str, name: str, *, plainly: bool) -> None:
        self.modules[bound] = self.modules.get(bound, 0) + (bound != name or plainly)
        if not self._sought.modules.get(name, frozenset()) <= self._sought.modules.get(bound, frozenset()):
            self.renamed.add(name)


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
        if before is None and _MIDST.search(data, max(line, data.rfind(b"\r", 0, start)), start) is not None:
            continue
        yield (None if before is None else b"".join(before[1].split())), match[1].translate(None, b"()\\")


class Known:
    """What is known of the tree: the union of the signs of its files.

    ``root:R`` it imports something of R · ``star:R`` it imports everything of R · ``loose:n`` a module that is named n
    may have other names · ``class:R:C`` C of R may be made, if R is imported · ``hot:n`` n is a name for something
    governed · ``wild:n`` the same, called under any name · ``gives:n`` n is a name for a function of the project that
    gives something governed · ``behind:n`` a declared name is an alias of what is named n.
    """

    def __init__(self, sought: Vocabulary, signs: Iterable[str]) -> None:
        self.sought = sought
        told = defaultdict[str, set[str]](set)
        for sign in signs:
            kind, _, name = sign.partition(":")
            told[kind].add(name)
        self._roots = told["root"]
        for root in told["star"] & sought.contagious:
            told["wild"] |= sought.makers[root].keys()
        self._wild, self._giving, self._behind = told["wild"], told["gives"], told["behind"]
        self.learned = frozenset(told["hot"] | told["wild"] | told["gives"] | told["behind"])
        self._loose = {root for name in told["loose"] for root in sought.modules.get(name, ())} & self._roots
        self._loose |= told["star"]
        makes = (name.partition(":") for name in told["class"])
        made = _closure(sought.leads, {name for root, _, name in makes if root in self._roots or root == "builtins"})
        behind_dot = {leaf for leaf, classes in sought.methods.items() if classes & made} | self.learned
        behind_dot |= {leaf for leaf, roots in sought.functions.items() if roots & self._loose}
        within_reach = {leaf: roots & self._roots for leaf, roots in sought.functions.items()}
        self._within_reach = {leaf: roots for leaf, roots in within_reach.items() if roots and leaf not in behind_dot}
        """Last components of what only a file has that spells the name of its module, and the roots of those."""
        self._always = sought.always | sought.keywords | self._behind | {ATTRIBUTE + word for word in behind_dot}
        self._quoted = frozenset(QUOTED + word[1:] for word in self._always if word[0] == ATTRIBUTE)
        imported = {leaf for leaf, roots in sought.functions.items() if roots & self._roots} | self.learned
        self._imported = frozenset(IMPORTED + leaf for leaf in imported)

    def makes(self, spelled: Iterable[str]) -> set[str]:
        """Signs of the classes that may be made of modules which may be had anywhere; ``spelled`` in the whole tree."""
        leaves = {word.lstrip(_MARKS) for word in spelled}
        made = ((root, self.sought.makers.get(root, {})) for root in self._loose)
        return {f"class:{root}:{name}" for root, of in made for leaf in leaves & of.keys() for name in of[leaf]}

    def hits(self, seen: Glance) -> Hits:
        """The words of a file that count: where none does, nothing in it is governed."""
        words = frozenset(seen.words)
        found = set(words & self._always)
        found |= {word[1:] for word in words & self._imported}
        if seen.has_star:
            found |= {word[1:] for word in self._imported if word[1:] in words}
        has_access = not words.isdisjoint(_ACCESS)
        if has_access:
            found |= words & self._quoted
        kinds = (ATTRIBUTE, QUOTED) if has_access else (ATTRIBUTE,)
        narrow = [word for word in words if word[0] in kinds and word[1:] in self._within_reach]
        if narrow:
            roots = self._roots if seen.has_star else _in_hand(words, self.sought).union(seen.roots)
            found.update(word for word in narrow if not roots.isdisjoint(self._within_reach[word[1:]]))
        giving = frozenset(word for word in found if word.lstrip(_MARKS) in self._giving)
        behind = frozenset(self._behind.intersection(word.lstrip(_MARKS) for word in found))
        wild = {word for word in found if word.lstrip(_MARKS) in self._wild}
        if not self.sought.contagious.isdisjoint(seen.roots):
            named = {word[1:] for word in words if word[0] == IMPORTED}
            wild |= (self.sought.contagious & words) | named
        return Hits(frozenset(found | wild), frozenset(wild), giving, behind)


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
