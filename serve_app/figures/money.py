"""What results cost, and what organizations have.

Projects are as many as anybody makes, so only those with most are told of. There is no series for the others together:
it would fall whenever a project comes to be told of, which a counter must not.
"""

from __future__ import annotations

from serve_app.accounts.credits import Credits
from serve_app.figures import declared
from serve_app.figures.scrape import Scrape
from serve_app.tasks.store import TaskStore

_PER_CREDIT = 1000


async def tell_of_money(credits: Credits, tasks: TaskStore, projects: int, scrape: Scrape) -> None:
    """Of at most so many `projects`."""
    for endpoint, (made, cost) in sorted((await credits.made()).items()):
        scrape.add(declared.RESULTS, made, endpoint=endpoint)
        scrape.add(declared.CREDITS_OF_RESULTS, cost / _PER_CREDIT, endpoint=endpoint)
    for project, cost in (await credits.paid(projects)).items():
        scrape.add(declared.PROJECT_CREDITS, cost / _PER_CREDIT, project=project)
    for project, seconds in (await tasks.device_seconds_of_projects(projects)).items():
        scrape.add(declared.PROJECT_DEVICE, seconds, project=project)
    sums = await credits.sums()
    scrape.add(declared.CREDITS_BALANCE, sums.balance / _PER_CREDIT)
    scrape.add(declared.CREDITS_HELD, sums.held / _PER_CREDIT)
    scrape.add(declared.CREDITS_SPENT, sums.spent / _PER_CREDIT)
    scrape.add(declared.CREDITS_GRANTED, sums.granted / _PER_CREDIT)
