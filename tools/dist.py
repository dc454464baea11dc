"""`python -m tools.dist` builds wheel and sdist, and checks that both run without the repository.

The checks run in a fresh virtual environment in a temporary folder, with the locked versions. Only pip uses the
network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
DIST = ROOT / "build" / "dist"

COMMANDS = (
    ["--version"],
    ["demo", "--rounds", "3"],
    ["plan", "digits.toml"],
    ["reproduce", "--list"],  # reads the papers' files, which are package data
)


def call(*command: str | Path, cwd: Path) -> None:
    """Run a program that knows nothing of the checkout; stop where it fails."""
    print("$", *command, flush=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SORDINO_DATA")}
    subprocess.run([str(word) for word in command], cwd=cwd, env=clean, check=True)


def built() -> tuple[Path, Path]:
    """A new wheel, made from a new sdist."""
    for old in DIST.glob("*"):
        old.unlink()
    call(sys.executable, "-m", "build", "--outdir", DIST, ROOT, cwd=ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def packaged_files() -> list[Path]:
    """All files of the package in the checkout."""
    found = (SOURCE / "sordino").rglob("*")
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def missing_from(wheel: Path) -> set[str]:
    """The files of the package that the wheel lacks."""
    held = set(zipfile.ZipFile(wheel).namelist())
    return {str(path.relative_to(SOURCE)) for path in packaged_files()} - held


def first_run_file() -> str:
    """The run file of the first page of the documentation."""
    return (ROOT / "docs" / "index.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0]


def check(wheel: Path, sdist: Path) -> None:
    """Install each in a fresh environment, and try it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "digits.toml").write_text(first_run_file())
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        install = (programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
        call(*install, wheel, cwd=folder)
        try_commands(programs / "sordino", folder)
        call(*install, "--no-deps", "--force-reinstall", sdist, cwd=folder)
        try_commands(programs / "sordino", folder)


def try_commands(sordino: Path, folder: Path) -> None:
    """What a newcomer runs."""
    for command in COMMANDS:
        call(sordino, *command, cwd=folder)


def main() -> None:
    """Build, compare, install, run."""
    wheel, sdist = built()
    if missing := missing_from(wheel):
        sys.exit(f"{wheel.name} lacks {', '.join(sorted(missing))}: add them to [tool.setuptools.package-data]")
    check(wheel, sdist)
    print(f"{wheel.name} and {sdist.name} in {DIST.relative_to(ROOT)} run")


if __name__ == "__main__":
    main()
