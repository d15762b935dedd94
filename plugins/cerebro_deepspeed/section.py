"""What a recipe may say of ``use: deepspeed``; imports neither DeepSpeed nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from cerebro_elastic.extending.recipes import ParallelismSection


class DeepSpeedSection(ParallelismSection):
    """Options are ``stage`` and ``config``, DeepSpeed's JSON or the path of its file from the recipe's folder
    on."""

    NEEDS: ClassVar[tuple[str, ...]] = ("deepspeed",)
    # What ZeRO's stage 3 saves, fsdp saves as well.
    AUTO_OPTIONS: ClassVar[Mapping[str, Any]] = {"stage": 2}

    def options_in(self, root: Path) -> dict[str, Any]:
        options = self.options
        if isinstance(file := options.get("config"), str):
            options["config"] = str(root / Path(file).expanduser())
        return options
