"""The metrics that a LightningModule logs, as far as the text of its file shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LATER = ("_step", "_epoch", "/dataloader_idx_")
"""Suffixes that Lightning adds to a metric's name in some cases."""
_ELSEWHERE = {"configure_callbacks", "callback_metrics", "logged_metrics", "setattr", "exec"}
"""A module with one of these names may have metrics that other code logs."""


def may_log(names: frozenset[str], metric: str) -> bool:
    """Whether a module that logs these names may have the ``metric``."""
    return metric in names or any(metric.startswith(f"{name}{more}") for name in names for more in _LATER)


def logged_names(tree: ast.Module, name: str) -> frozenset[str]:
    """The names that the class ``name`` logs; none unless all of them are seen: its only base is
    ``LightningModule``, it hands itself to nobody, and calls ``log`` and ``log_dict`` with literal names."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(classes) != 1 or [_last(base) for base in classes[0].bases] != ["LightningModule"]:
        return frozenset()
    nodes = list(ast.walk(classes[0]))
    if _ELSEWHERE & {_last(node) for node in nodes} or classes[0].decorator_list or classes[0].keywords:
        return frozenset()
    kept = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    kept |= {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    if any(isinstance(node, ast.Name) and node.id == "self" and id(node) not in kept for node in nodes):
        return frozenset()
    found, called = set[str](), set[int]()
    for node in nodes:
        if isinstance(node, ast.Call) and _last(node.func) in ("log", "log_dict"):
            called.add(id(node.func))
            for given in _names(node):
                if not (isinstance(given, ast.Constant) and isinstance(given.value, str)):
                    return frozenset()
                found.add(given.value)
    if any(_last(node) in ("log", "log_dict") and id(node) not in called for node in nodes):
        return frozenset()
    return frozenset(found)


def _last(node: ast.AST) -> str:
    """The last part of a dotted name; the name of a function."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.FunctionDef(name=name):
            return name
    return ""


def _names(call: ast.Call) -> Iterator[ast.expr | None]:
    """The expressions of the names that a call of ``log`` or ``log_dict`` logs; one that is none of a name if
    they are not to be seen."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "name"), None)
    if _last(call.func) == "log_dict" and isinstance(given, ast.Dict):
        yield from given.keys
    else:
        yield given
