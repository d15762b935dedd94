"""Constraints between hyper-parameters: expressions such as ``lr * width < 4``, or users' functions.

An expression is interpreted here node by node: numbers, strings, lists, names, arithmetic,
comparisons, ``and``, ``or``, ``not``, ``in`` and a few functions. Anything else is refused.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.errors import RecipeError, TaskError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import flattened
from cerebro_elastic.registry import import_object, is_reference
from cerebro_elastic.system import arguments

Constraint: TypeAlias = Callable[[HParams], bool]

_MOST_BITS = 4096
"""The largest result of a power of whole numbers: 9**9**9 would take hours."""


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError(f"{base} ** {exponent} is too large")
    return base**exponent


def _product(left: Any, right: Any) -> Any:
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise TypeError(f"only numbers can be multiplied, not {left!r} and {right!r}")
    return left * right


_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"abs": abs, "len": len, "max": max, "min": min, "sum": sum}


_Condition: TypeAlias = tuple[frozenset[str], Callable[[HParams], Any]]
"""The names of its hyper-parameters, and whether it holds for their values."""


def constraint_of(recipe: Recipe) -> Constraint:
    """All constraints of the recipe as one. Raises ``RecipeError`` for one that cannot be evaluated."""
    checks = [_checked(recipe, index, text) for index, text in enumerate(recipe.search.constraints)]
    return lambda hparams: all(check(hparams) for check in checks)


def _checked(recipe: Recipe, index: int, text: str) -> Constraint:
    """One constraint. Each of its errors names the constraint's place in the recipe."""
    place = f"{recipe.source.where(('search', 'constraints', index))}: constraint {text!r}"
    try:
        space = flattened(recipe.search.space)
        names, holds = _function(text, recipe, space) if is_reference(text) else _expression(text, space)
    except (ValueError, TaskError) as exc:
        raise RecipeError(f"{place}: {exc}") from exc

    def check(hparams: HParams) -> bool:
        if not names <= hparams.keys():  # it concerns a branch that this config does not take
            return True
        try:
            decision = holds(hparams)
        except Exception as exc:
            raise RecipeError(f"{place} fails for {dict(hparams)}: {type(exc).__name__}: {exc}") from exc
        if not isinstance(decision, bool):
            raise RecipeError(f"{place} gives {decision!r} for {dict(hparams)}: it must be true or false")
        return decision

    return check


def _function(reference: str, recipe: Recipe, space: Mapping[str, Any]) -> _Condition:
    function = import_object(reference, recipe.root)
    needed = arguments.required(function)
    if unknown := sorted(needed - set(space)):
        near = did_you_mean(unknown[0], space)
        raise ValueError(f"it takes {unknown[0]!r}, which is not in the space; {near}")
    return needed, lambda hparams: function(**arguments.select(function, hparams))


def _expression(text: str, space: Mapping[str, Any]) -> _Condition:
    try:
        tree = ast.parse(text, mode="eval").body
        _allow(tree, space)
    except SyntaxError as exc:
        raise ValueError(f"not an expression: {exc.msg}; write e.g. 'lr * width < 4'") from exc
    except (RecursionError, MemoryError):
        raise ValueError("too deeply nested: use 'module:function' instead") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    named = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)
    return frozenset(node.id for node in named), lambda hparams: _evaluate(tree, hparams)


def _allow(node: ast.AST, space: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for anything that ``_evaluate`` does not support."""
    match node:
        case ast.Name(id=name):
            if name not in space:
                raise ValueError(f"{name!r} is not in the space; {did_you_mean(name, space)}")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in _FUNCTIONS:
                raise ValueError(f"unknown function {name!r}; {did_you_mean(name, _FUNCTIONS)}")
            for argument in args:
                _allow(argument, space)
        case (
            ast.Constant()
            | ast.List()
            | ast.Tuple()
            | ast.BoolOp()
            | ast.BinOp()
            | ast.UnaryOp()
            | ast.Compare()
        ):
            for child in ast.iter_child_nodes(node):
                _allow(child, space)
        case ast.boolop() | ast.expr_context():
            pass
        case ast.operator() | ast.unaryop() | ast.cmpop() if type(node) in _OPERATORS:
            pass
        case _:
            raise ValueError(
                f"{type(node).__name__} is not allowed here: use arithmetic, comparisons, and, or, not, in, "
                f"{', '.join(_FUNCTIONS)}; or 'module:function' for more"
            )


def _evaluate(node: ast.AST, names: HParams) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_evaluate(item, names) for item in items]
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, names), _evaluate(right, names))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_evaluate(part, names) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_evaluate(part, names) for part in parts)
        case ast.Call(func=ast.Name(id=function), args=args):
            return _FUNCTIONS[function](*(_evaluate(argument, names) for argument in args))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [_evaluate(side, names) for side in (left, *comparators)]
            return all(
                _OPERATORS[type(op)](one, other)
                for op, one, other in zip(ops, sides, sides[1:], strict=False)
            )
    raise AssertionError(f"_allow let {type(node).__name__} pass")
