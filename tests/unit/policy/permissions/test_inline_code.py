"""Of Python on a command line it is known which files it opens, or it is taken to open any."""

from __future__ import annotations

import pytest

from wieldy.shell.effects.programs.interpreters import python_files


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("print(1)", ()),
        ("import json, sys\nfor x in json.load(sys.stdin)['a']:\n    print(x.get('b', '').upper())", ()),
        ("from collections import Counter; print(Counter(input().split()).most_common(3))", ()),
        ("import urllib.parse; print(urllib.parse.quote('a b'))", ()),
        ("import math; print(math.sqrt(2), f'{math.pi:.2f}')", ()),
        ("import datetime; print(datetime.datetime.now().isoformat())", ()),
        ("import re, sys; print(re.sub('a', 'b', sys.stdin.read()).strip())", ()),
        ("print(open('a.txt').read(), open('b', 'rb', ).read())", ("a.txt", "b")),
        ("with open('a', encoding='utf-8') as f: print(f.readlines())", ("a",)),
        ("def f(x): return x * 2\nprint([f(n) for n in range(3)])", ()),
    ],
)
def test_code_that_names_its_files(code: str, files: tuple[str, ...]) -> None:
    assert python_files(code) == files


@pytest.mark.parametrize(
    "code",
    [
        "open(x)",
        "open('a'); open = 1",
        "eval('1'); eval = 1",
        "[exec for exec in [exec]]",
        "open('a' + 'b')",
        "open(f'{x}')",
        "open(*['a'])",
        "open(**{'file': 'a'})",
        "open('a', opener=f)",
        "f = open; f('a')",
        "[o('a') for o in [open]]",
        "print(open)",
        "import os",
        "import os as json; json.load('x')",
        "import json as j; j.codecs.open('x')",
        "import json; json.codecs.open('x')",
        "import json; j = json; j.codecs.open('x')",
        "import sys; sys.modules['os'].listdir()",
        "from sys import modules",
        "from json import codecs",
        "from json import *",
        "from . import x",
        "import json.decoder",
        "(lambda: 0).__globals__",
        "(x for x in ()).gi_frame.f_builtins['open']('a')",
        "getattr(str, 'x')",
        "eval('1')",
        "exec('1')",
        "__import__('os')",
        "globals()['open']",
        "vars()",
        "class A: pass",
        "import urllib.request",
        "import urllib.parse; urllib.request.urlopen('file:///x')",
        "import urllib.parse; p = urllib.parse; p.sys.modules",
        "import json; print([m.codecs for m in [json]])",
        "def open(x): pass",
        "try:\n 1/0\nexcept Exception as e:\n print(e.__traceback__)",
        "print('unclosed",
        "x" * 30_000,
    ],
)
def test_code_that_could_open_anything(code: str) -> None:
    assert python_files(code) is None
