"""Memory that a user's file shares between processes is refused before the start."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from cerebro_elastic.errors import TaskError
from cerebro_elastic.runs.start.shared_memory import refuse_shared_memory

SHARED = {
    "a value": "from multiprocessing import Value\nheld = Value('i', 0)",
    "a raw array": "from multiprocessing import RawArray\nheld = RawArray('d', 3)",
    "a tensor of a class": "import torch\nclass Net:\n    held = torch.zeros(2).share_memory_()",
    "a tensor in a dict": "import torch\nkept = {'held': torch.zeros(2).share_memory_()}",
    "a module's weights": "from torch import nn\nheld = nn.Linear(2, 2).share_memory()",
    "a file to write": "import numpy as np\nheld = np.memmap('{file}', mode='w+', shape=(3,))",
    "a view of it": "import numpy as np\nheld = np.asarray(np.memmap('{file}', mode='w+', shape=(3,)))",
}
PRIVATE = """
from multiprocessing import RawValue, Value
import mmap
import numpy as np
import torch
rows, weights, layer = np.zeros(3), torch.zeros(3), torch.nn.Linear(2, 2)
np.save('{file}.npy', rows)
stored = np.load('{file}.npy', mmap_mode='r')
"""


@pytest.mark.parametrize("text", [*SHARED.values(), PRIVATE], ids=[*SHARED, "none"])
def test_memory_that_ranks_would_share_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sharing.py").write_text(text.replace("{file}", str(tmp_path / "rows")))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("sharing")
    try:
        if text is PRIVATE:
            refuse_shared_memory(tmp_path)
        else:
            held = r"(Net\.held|sharing\.held|sharing\.kept\['held'\]) is a .* processes share"
            with pytest.raises(TaskError, match=held):
                refuse_shared_memory(tmp_path)
    finally:
        del sys.modules["sharing"]
