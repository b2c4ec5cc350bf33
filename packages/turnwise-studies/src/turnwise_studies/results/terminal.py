"""A study's figures as a table on the terminal."""

from rich.table import Column, Table
from rich.text import Text

from turnwise_studies.results.figures import Figures
from turnwise_studies.results.measures import Measured
from turnwise_studies.results.page import by_metric, measured_text


def study_table(found: Figures) -> Table:
    """All arms of a study: every seed, and their mean."""
    seeds = [Column(f"seed {seed}", justify="right") for seed in found.seeds]
    table = Table("metric", "arm", *seeds, title=found.title)
    several = len(found.seeds) > 1
    if several:
        table.add_column("mean", justify="right")
    for name, arm, of in by_metric(found):
        rate = name in found.rates
        cells = [measured_text(one, rate) for one in of.by_seed.values()]
        mean = None if of.over_seeds is None else of.over_seeds.mean
        cells += [measured_text(Measured(mean), rate)] if several else []
        table.add_row(Text(name), Text(arm), *cells)
    return table
