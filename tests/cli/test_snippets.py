"""Every Python, TOML and console block of the documents is run, or says why it cannot be (see tests/pages.py)."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import click
import pytest
import typer

from sordino.cli.app import app
from sordino.config import load_sweep
from sordino.config.schema import File
from tests.pages import PAGES, ROOT, WORDS, Block, all_blocks, blocks_of, commands_of, run_file_with, without_blocks

SHOWN = {"", "text", "json"}  # output, formulas, trees of files
RUN = {"console", "python", "toml"}
OTHERS = {"git", "make", "pip", "python", "ssh-keygen"}  # commands of other programs, never run here
COMMAND = typer.main.get_command(app)


def blocks(*words: str) -> list[Block]:
    return [block for block in all_blocks(*RUN) if block.word in words]


def on(found: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", found, ids=lambda block: block.name)


# --- What a page may hold -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_have_a_known_language_and_comments_a_known_word(page):
    text = page.read_text()
    assert {block.language for block in blocks_of(page)} <= SHOWN | RUN
    assert len(re.findall("^```", text, re.M)) == 2 * len(blocks_of(page))
    for word in re.findall(r"^<!-- ([a-z ]+): .* -->$", text, re.M):
        assert word in WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_console_blocks(page):
    """An indented line is a block too, which nothing would run."""
    indented = r"^ {4,}(?:\$ )?(?:[A-Z_]+=\S+ )*sordino [a-z].*$"
    assert not re.findall(indented, without_blocks(page.read_text()), re.M)


@on(blocks("run by"))
def test_the_test_that_runs_a_block_reads_its_page(block):
    assert block.page.name in (ROOT / block.value).read_text()


@on(blocks("not run"))
def test_a_block_that_is_not_run_says_why(block):
    assert len(block.value.split()) >= 3


# --- Commands --------------------------------------------------------------------------------------------------------


def require_known(words: list[str], where: str) -> None:
    """A command of `sordino`, its subcommands and its options are the program's."""
    command: click.Command = COMMAND
    while isinstance(command, click.Group) and words and not words[0].startswith("-") and not words[0].isupper():
        name, *words = words
        assert name in command.commands, f"{where}: there is no command {name}"
        command = command.commands[name]
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    for word in words:
        assert not word.startswith("--") or word.partition("=")[0] in options, f"{where}: {word} is no option"


@on(all_blocks("console"))
def test_commands_and_options_are_those_of_the_program(block):
    for line, _ in commands_of(block):
        words = shlex.split(line, comments=True)
        while "=" in words[0]:  # the environment of the command
            words = words[1:]
        if words[0] == "sordino":
            require_known(words[1:], block.name)
        else:
            assert words[0] in OTHERS, f"{block.name}: {words[0]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_are_those_of_the_program(page):
    for said in re.findall(r"`sordino ([a-z][^`]*)`", without_blocks(page.read_text())):
        require_known(shlex.split(said.replace("'", "")), page.name)


# --- Run files -------------------------------------------------------------------------------------------------------


@on([block for block in all_blocks("toml") if set(tomllib.loads(block.text)) <= set(File.model_fields)])
def test_a_run_file_or_a_part_of_one_can_be_planned(block, tmp_path):
    path = tmp_path / "part.toml"
    path.write_text(run_file_with(block.text))
    load_sweep(path).points[0].config.plan()


# --- What is run -----------------------------------------------------------------------------------------------------


def run_python(block: Block) -> None:
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(block.text, block.name, "exec"), {"__name__": "__main__"})
    if block.printed is not None:
        assert out.getvalue() == block.printed, block.name


def run_console(block: Block, run: Callable[..., object]) -> None:
    """Every command ends well and prints what is shown; a line of three dots stands for what is left out."""
    for line, shown in commands_of(block):
        program, *words = shlex.split(line, comments=True)
        assert program == "sordino", f"{block.name}: say `not run` or `run by`: {line}"
        printed = " ".join(run(*words).stdout.split())
        start = 0
        for part in re.split(r"^\.\.\.$", shown, flags=re.M):
            wanted = " ".join(part.split())
            found = printed.find(wanted, start)
            assert found >= 0, f"{block.name}: {line} does not print {wanted!r}, but {printed}"
            start = found + len(wanted)


RUN_HERE = [page for page in PAGES if any(block.page == page and block.is_run_here for block in all_blocks(*RUN))]


LONG = {"models.md", "error_feedback.md"}  # pages whose blocks train for long


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.name in LONG else (), id=page.name) for page in RUN_HERE],
)
def test_the_blocks_of_a_page_run(page, run, needs, tmp_path, monkeypatch):
    (tmp_path / "src").symlink_to(ROOT / "src")  # the papers' run files
    monkeypatch.chdir(tmp_path)
    left_out = None
    for block in blocks_of(page):
        if not block.is_run_here or block.language not in RUN:
            continue
        if block.word == "needs":
            try:
                needs(block.value)
            except pytest.skip.Exception as skipped:
                left_out = skipped
                continue
        if block.word == "file":
            (tmp_path / block.value).write_text(block.text)
        if block.language == "python":
            run_python(block)
        elif block.language == "console":
            run_console(block, run)
        elif set(tomllib.loads(block.text)) > {"release"}:
            Path("releases.toml").write_text(block.text)
            run("account", "compose", "releases.toml")
    if left_out is not None:
        raise left_out
