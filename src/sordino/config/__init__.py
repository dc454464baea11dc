"""Run files: TOML in, checked tasks and plans out; every error names the file and the line."""

from sordino.config.config import Config
from sordino.config.sweeps import Sweep, SweepPoint, load_config, load_sweep, tasks_of

__all__ = ["Config", "Sweep", "SweepPoint", "load_config", "load_sweep", "tasks_of"]
