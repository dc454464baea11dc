"""Sordino: differentially private federated learning, with a truthful certificate for every run.

`__init__.pyi` is the list of public names. They are loaded on first use, so that `import sordino` does not load JAX.
"""

import lazy_loader

from sordino.cores import use_all_cores

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

use_all_cores()
