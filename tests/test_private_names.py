"""What is private to the libraries that we build on is reached from files of that name alone: there one looks
after an upgrade."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPO = Path(__file__).parents[1]
LIBRARIES = {
    *("torch", "lightning", "torchmetrics", "deepspeed", "optuna", "torchx", "urllib3", "etcd3"),
    *("keras", "jax", "flax", "sklearn", "lightgbm", "ray", "xgboost", "transformers", "peft"),
}
OURS_OR_STANDARD = {
    *("_replace", "_make"),  # of named tuples
    *("_exit", "_shutdown", "_run_exitfuncs"),  # a fork ends like a process
    "_is_in_bad_fork",  # the fork server does not import torch; tried in test_torch_internals.py
}


def sources() -> list[Path]:
    files = [*REPO.glob("cerebro_elastic/**/*.py"), *REPO.glob("plugins/**/*.py")]
    return sorted(file for file in files if "_internals" not in file.name)


@cache
def names_of_ours() -> frozenset[str]:
    """What any of our files defines; a subclass of ours may use it as its own."""
    return frozenset(name for file in sources() for name in _own_names(ast.parse(file.read_text())))


def private_names(source: str) -> Iterator[str]:
    """Names with an underscore that are imported from a library, or read from an object whose class does not
    define them."""
    tree = ast.parse(source)
    own = set(_own_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            path = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from filter(_is_private, path)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                path = alias.name.split(".")
                yield from filter(_is_private, path if path[0] in LIBRARIES else ())
        elif isinstance(node, ast.Attribute) and _is_private(node.attr):
            on_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr not in (names_of_ours() if on_self else own):
                yield node.attr


def _own_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_file_uses_a_private_name_of_a_library() -> None:
    """What does belongs into its folder's ``_..._internals.py``."""
    used = {file: set(private_names(file.read_text())) - OURS_OR_STANDARD for file in sources()}
    assert {str(file.relative_to(REPO)): names for file, names in used.items() if names} == {}


def test_such_a_name_would_be_seen() -> None:
    source = """
from torch.nn import _reduction
import torch._dynamo
class A:
    def f(self):
        return self._of_a_base(other._of_an_object)
"""
    assert set(private_names(source)) == {"_reduction", "_dynamo", "_of_a_base", "_of_an_object"}
