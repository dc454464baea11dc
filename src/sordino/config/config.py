"""A checked run file, and the task and the plan that it describes."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sordino.config.locate import Source, located
from sordino.config.rules import Resolved, require_dimension, with_names
from sordino.config.schema import File, PrivacySection, registries
from sordino.errors import InvalidInput, require

if TYPE_CHECKING:
    from sordino.planning import Plan, ResolvedPlan
    from sordino.runs.point import Point
    from sordino.tasks import Population, Task
    from sordino.types import Bounder, Warning


@dataclass(frozen=True)
class Config:
    """One run."""

    source: Source
    file: File
    ruled: tuple[Resolved, ...] = ()  # the keys that theorems gave their numbers

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def changed(self) -> str:  # the text of the file with the changes of --set
        return self.source.changed

    @property
    def task_key(self) -> str:
        """Equal for files with the same task."""
        return self.file.task.model_dump_json()

    def toml(self, seed: int | None = None) -> str:
        """The run file of this one run, perhaps with another seed."""
        import tomli_w

        run = self.file.run if seed is None else self.file.run.model_copy(update={"seed": seed})
        file = self.file.model_copy(update={"run": run})
        values = file.model_dump(exclude_unset=True, exclude_none=True)
        return tomli_w.dumps(with_names(values, self.ruled))

    def located(self, *sections: str) -> AbstractContextManager[None]:
        """Within it, errors about values of these sections name the file and the line."""
        return located(self.source, self.file, *sections)

    def task(self) -> Task:
        """The task; reads the data."""
        from sordino.tasks import task

        with self.located("task"):
            section = self.file.task
            given = section.model_dump(exclude={"name", "options"})
            for option in section.options:
                remedy = "is a key of [task] itself: write it there" if option in given else "names no option"
                require(option not in given and option not in ("data", "y"), option, section.options[option], remedy)
            return task(section.name, **given, **section.options)

    def plan(self) -> Plan:
        """The plan, not yet resolved for a task."""
        from sordino.planning import plan

        run, privacy = self.file.run, self.file.privacy
        promise = privacy.model_dump(include=set(PrivacySection.model_fields))
        with self.located("algorithm", "bound"):
            section = self.file.algorithm
            algorithm = registries().methods[section.name](bound=self._bound(), **section.model_dump(exclude={"name"}))
        with self.located("privacy", "run"):
            return plan(algorithm, rounds=run.rounds, cohort=run.cohort, **promise, **privacy.options)

    def point(self, task: Task) -> Point:
        """The run of the file, resolved for the task."""
        from sordino.runs.point import Point

        plan = self.plan()
        return Point(plan, self.file.run.seed, self.resolve(plan, task.population))

    def resolve(self, plan: Plan, population: Population) -> ResolvedPlan:
        """The plan for these clients and this model, simulated or deployed."""
        with self.located("run", "privacy", "algorithm", "bound", "rules"):
            require_dimension(self.ruled, population.d)
            resolved = plan.resolve(population)
        return replace(resolved, certificate=resolved.certificate.with_warnings(*self.warnings(plan)))

    def warnings(self, plan: Plan) -> tuple[Warning, ...]:
        """What a certificate must say of the file's own constants."""
        from_data = self._constants_from_data()
        if not (from_data and plan.private):
            return ()
        from sordino.privacy import wording

        return (wording.constants_from_data(from_data, [".".join(each.place) for each in self.ruled]),)

    def _constants_from_data(self) -> list[str]:
        """The constants of theorems that were computed from clients' records."""
        used = {name for each in self.ruled for name in each.arguments}
        for name in self.file.rules.from_data:
            with self.located("rules"):
                require(name in used, "from_data", name, f"name constants of the rules: {', '.join(sorted(used))}")
        return self.file.rules.from_data

    def _bound(self) -> Bounder | None:
        bounders = registries().bounders
        given = self.file.bound.model_dump(exclude_none=True)
        if len(given) > 1:
            *names, last = bounders
            raise InvalidInput("bound", given, f"give one of {', '.join(names)} and {last}")
        for name, value in given.items():
            arguments = list(inspect.signature(bounders[name]).parameters)
            try:
                return bounders[name](**({arguments[0]: value} if len(arguments) == 1 else value))
            except TypeError as error:  # of adaptive_clip = {...}
                raise InvalidInput(name, value, f"other keys are needed: {error}") from None
        return None
