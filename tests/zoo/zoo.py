"""Packages from PyPI as they are: each case is checked, run, verified and replayed in its environment,
and the table is written to ``docs/evidence/zoo.md``.

A case is a recipe in ``cases/``. Its first line names its environment and what is installed there. What else
is ours stands in the Python file beside it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases"
ENVIRONMENTS = ROOT / "build" / "zoo"
PAGE = ROOT / "docs" / "evidence" / "zoo.md"
PINNED = ("torch", "lightning", "pytorch-lightning")
"""What environments have in the versions of ``constraints.txt``; a package chooses the rest."""
OTHER_PINS = {"pictures": ("torch==2.14.1", "torchvision==0.29.1")}
"""Environments for packages that need torchvision or torchaudio: PyPI's find their operators beside PyPI's
torch of one version only, not beside a CPU build."""
STEPS = ("check", "run", "verify", "replay")
MOST_SECONDS = 600
START, END = "<!-- made by: make zoo -->", "<!-- end -->"
HEAD = (
    "| package | field | version | verdict | lines of ours | seconds |",
    "| --- | --- | --- | --- | --- | --- |",
)
_FIRST = re.compile(r"# (.+), environment (\S+): (.+)")


@dataclass(frozen=True)
class Case:
    """A package as its own pages use it."""

    field: str
    package: str
    environment: str
    requirements: tuple[str, ...]
    """What ``pip install`` gets, the package itself first; those behind ``--no-deps`` come without theirs."""
    recipe: Path

    @classmethod
    def of(cls, recipe: Path) -> Case:
        first = recipe.read_text().splitlines()[0]
        if not (found := _FIRST.fullmatch(first)):
            rule = "it must be '# FIELD, environment NAME: REQUIREMENT ...'"
            raise SystemExit(f"{recipe}: the first line is {first!r}: {rule}")
        requirements = tuple(found[3].split())
        named = next(name for name in requirements if not name.startswith("-"))
        return cls(found[1], re.split(r"[\[=<>]", named)[0], found[2], requirements, recipe)

    @property
    def lines(self) -> int:
        """Lines of ours, without imports and blank ones."""
        code = self.recipe.with_suffix(".py")
        lines = code.read_text().splitlines() if code.exists() else []
        return sum(bool(line.strip()) and not line.startswith(("import ", "from ")) for line in lines)


def install(case: Case) -> Path:
    """The folder of commands of the case's environment, which then has what it requires."""
    folder = ENVIRONMENTS / case.environment
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q")
    constraints = folder / "constraints.txt"
    if not constraints.exists():
        venv.create(folder, with_pip=True)
        other = OTHER_PINS.get(case.environment, ())
        names = {*PINNED} - {pin.partition("==")[0] for pin in other}
        pins = (ROOT / "constraints.txt").read_text().splitlines()
        pins = [*other, *(pin for pin in pins if pin.partition("==")[0] in names)]
        constraints.write_text("".join(f"{pin}\n" for pin in pins))
        subprocess.run([*pip, "-c", str(constraints), "-e", f"{ROOT}[lightning]"], check=True)
    installed = folder / f"{case.recipe.stem}.installed"
    if not installed.exists():
        ours = ("-e", f"{ROOT}[lightning]")  # whose requirements count with the package's
        subprocess.run([*pip, "-c", str(constraints), *ours, *case.requirements], check=True)
        installed.touch()
    return folder / "bin"


def verdict(case: Case, commands: Path) -> str:
    """What the check says, or the step that failed and its error."""
    outcomes: set[str] = set()
    for step in STEPS:
        what = case.recipe.name if step in ("check", "run") else case.recipe.stem
        fresh = ("--fresh", "--yes") if step == "run" else ()
        try:
            done = subprocess.run(
                [commands / "cerebro", step, what, *fresh, "--json"],
                cwd=CASES,
                env={**os.environ, "OMP_NUM_THREADS": "1", "CEREBRO_HOME": str(ENVIRONMENTS / "runs")},
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"{step}: not done after {MOST_SECONDS} s"
        if step == "check" and done.stdout.startswith("{"):
            found = [config["exactness"] for config in json.loads(done.stdout)["checked"]]
            outcomes = {each["outcome"] for each in found}
        if done.returncode:
            story = found[0]["story"] if step == "check" and outcomes else done.stderr or done.stdout
            if step == "replay" and done.stdout.startswith("{"):
                visits = json.loads(done.stdout)["visits"]
                differ = {text.partition(":")[0] for visit in visits for text in visit["differences"]}
                story = f"differs in {' and '.join(sorted(differ))}"
            return f"{step}: {' '.join(story.split())[:300]}".replace("|", "/")
    return " and ".join(sorted(outcomes))


def row(case: Case) -> str:
    """The case's line of the table."""
    try:
        commands = install(case)
    except subprocess.CalledProcessError:
        why = "cannot be installed beside what we pin"
        return f"| {case.package} | {case.field} | - | {why} | {case.lines} | - |"
    asked = f"from importlib.metadata import version; print(version({case.package!r}))"
    version = subprocess.check_output([commands / "python", "-c", asked], text=True).strip()
    started = time.monotonic()
    found = verdict(case, commands)
    seconds = time.monotonic() - started
    return f"| {case.package} | {case.field} | {version} | {found} | {case.lines} | {seconds:.0f} |"


def main() -> None:
    """Try the cases of the packages that are named, or all, and replace their lines of the page."""
    cases = sorted(map(Case.of, CASES.glob("*.yaml")), key=lambda case: (case.field, case.package))
    names = sys.argv[1:] or [case.package for case in cases]
    if unknown := set(names) - {case.package for case in cases}:
        raise SystemExit(f"no case for {unknown}: choose from {', '.join(case.package for case in cases)}")
    for case in cases:
        if case.package in names:
            line = row(case)
            print(line, flush=True)
            # Read now: another process may have tried other packages meanwhile.
            before, start, rest = PAGE.read_text().partition(START)
            table, end, after = rest.partition(END)
            rows = {old.split(" | ")[0]: old for old in table.splitlines() if old.startswith("| ")}
            rows[f"| {case.package}"] = line
            known = [rows[f"| {case.package}"] for case in cases if f"| {case.package}" in rows]
            PAGE.write_text("\n".join([before + start, "", *HEAD, *known, "", end + after]))


if __name__ == "__main__":
    main()
