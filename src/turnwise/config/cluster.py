"""Settings of a run on several processes."""

from pydantic import Field

from turnwise.config.section import Section


class ClusterConfig(Section):
    """The processes of the learner."""

    learners: int = Field(1, ge=1)
    """Processes that make each update together, each with a part of the weights and of the rows;
    on GPUs one for each."""
    seconds: float = Field(600.0, gt=0)
    """Deadline of whatever the processes wait for of each other; past it the run ends."""
