"""Sentences of the documentation of Python modules, each with its module (Python Software Foundation)."""

import importlib
import inspect
import re

MODULES = "argparse", "asyncio.base_events", "statistics", "tarfile", "threading", "unittest.mock"


def load():
    """The sentences, and the numbers of their modules."""
    text, label = [], []
    for number, name in enumerate(MODULES):
        source = inspect.getsource(importlib.import_module(name))
        for documentation in re.findall(r'"""(.+?)"""', source, re.DOTALL):
            sentences = (" ".join(each.split()) for each in re.split(r"(?<=[.:])\s+", documentation))
            text += [each.encode() for each in sentences if len(each) > 20]
        label += [number] * (len(text) - len(label))
    return {"text": text, "label": label}
