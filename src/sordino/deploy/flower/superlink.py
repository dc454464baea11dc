"""`python -m sordino.deploy.flower.superlink <arguments of flower-superlink>`: the SuperLink behind the guard."""

from __future__ import annotations

import sys

import flwr.superlink.extensions as extensions
from starlette.middleware import Middleware

from sordino.deploy.flower.guard import Guard
from sordino.deploy.flower.parent import end_with_parent


def main() -> None:
    """Put the guard in front, then start flower-superlink with the arguments of this process."""
    end_with_parent()
    setattr(extensions, "get_middleware", lambda: (Middleware(Guard),))  # noqa: B010, mypy allows no assignment
    import flwr.superlink.main as application
    from flwr.superlink.cli import flower_superlink

    if getattr(application, "extensions", None) is not extensions:
        raise RuntimeError("this version of flwr looks for its middleware elsewhere: it would run without the guard")
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
