"""The command line, one thin file a command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run `sordino`; every mistake that a user can make ends as one line on stderr and exit code 2."""
    import click

    from sordino.cli.app import app
    from sordino.errors import SordinoError

    try:
        sys.exit(app(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else "see sordino --help")
        sys.exit(0)
    except click.ClickException as error:
        _fail(_one_line(error))
    except SordinoError as error:
        _fail(str(error))
    except ArithmeticError as error:
        _fail(f"a number is out of the range that can be computed ({error}): use less extreme values")
    except BrokenPipeError:  # the reader closed, as in `sordino account ... | head`
        sys.stderr.close()
        sys.exit(141)


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def _one_line(error: Exception) -> str:
    """A usage error of click's, with what would have been right."""
    import click

    assert isinstance(error, click.ClickException)
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if isinstance(context.command, click.Group) and "No such command" in message:
        return f"{message} Use one of {', '.join(context.command.list_commands(context))}."
    return f"{message} See `{context.command_path} --help`."
