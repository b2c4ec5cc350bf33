"""Settings of the processes beside the trainer's, on one machine or many: `[cluster]`."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need

if TYPE_CHECKING:
    from turnwise.config import Recipe


class ClusterConfig(WingSection):
    """Processes beside the trainer's: docs/how-to/scale.md, docs/how-to/workers.md,
    docs/how-to/vllm.md."""

    always: ClassVar[bool] = True

    learners: int = Field(1, ge=1)
    """Processes that make each update together, each with a part of the weights and of the rows;
    the run's own is the first."""
    sequence_ranks: int = Field(1, ge=1)
    """Learners that compute each row together, a slice of its tokens each (Ulysses, arXiv
    2309.14509), for contexts that are too long for one of them. Divides `learners`."""
    expert_parallel: bool = False
    """Whether each learner keeps its experts of a layer, to which the others send their tokens, in
    place of gathering all experts for a pass. Learners divide the experts."""
    replicas: int = Field(1, ge=1)
    """Copies of the divided model, each over `learners / replicas` learners (HSDP): more memory on
    each, less to wait for over slow connections."""
    seconds: float = Field(600.0, gt=0)
    """Deadline of whatever the learners wait for of each other; past it the run ends."""
    address: str = "local"
    """The Ray cluster of all processes beside this one: `auto` is the one that this machine belongs
    to, `host:port` that of a head node. `local` starts one here for servers and workers; learners
    are plain processes then."""
    samplers: int = Field(0, ge=0)
    """Servers of vLLM on the nodes of the cluster, with `engine.name = "vllm"`. 0 starts them on
    the run's own machine; the embedded engine samples in its process."""
    colocated: bool = False
    """Whether vLLM's servers share the learners' GPUs, and take turns with them: the same number of
    `samplers` beside each learner, or the servers of this machine."""
    workers: int = Field(0, ge=0)
    """Processes that play episodes (resets, tools, sandboxes, verifiers), one CPU each. 0 plays
    them in the run's own process."""
    start_seconds: float = Field(300.0, gt=0)
    """Deadline of places on the cluster, and of the start of learners, servers and workers."""

    @property
    def takes_resources(self) -> bool:
        return self.learners > 1 or bool(self.samplers or self.workers or self.colocated)

    @property
    def divides_policy(self) -> bool:
        return self.learners > 1

    def for_evaluation(self, of_run: bool) -> Self:
        alone = {"learners": 1}
        if self.colocated:
            alone["samplers"] = self.samplers // self.learners
        return self.model_copy(update=alone)

    def claims(self) -> Iterator[Claim]:
        if self.learners > 1:
            several = {Need.ONE_LEARNER: "divides the updates over several processes"}
            setting = f"cluster.learners = {self.learners}"
            yield Claim(setting, denies=several, remedy="set cluster.learners=1")
        if self.sequence_ranks > 1:
            slices = {Need.WHOLE_ROWS: "computes them in slices"}
            setting = f"cluster.sequence_ranks = {self.sequence_ranks}"
            yield Claim(setting, denies=slices, remedy="set cluster.sequence_ranks=1")
        if self.workers:
            elsewhere = {
                Need.OWN_PROCESS: "plays them in others",
                Need.IMAGES: "plays episodes where no image can be made tokens",
            }
            setting = f"cluster.workers = {self.workers}"
            yield Claim(setting, denies=elsewhere, remedy="set cluster.workers=0")
        if self.samplers:
            nodes = {Need.SERVERS_HERE: "places them on the nodes of a cluster"}
            if not (self.colocated and self.learners == 1):
                nodes[Need.FIRST_GPU] = "places them elsewhere"
            setting = f"cluster.samplers = {self.samplers}"
            needs = (Need.SERVERS, Need.STARTED_SERVERS)
            yield Claim(setting, needs, nodes, "leave cluster.samplers out")
        if self.colocated:
            shared = {
                Need.OWN_GPUS: "puts each on the GPU of a learner",
                Need.BASE_MODEL: "lets them give its memory back",
            }
            needs = (Need.STILL_POLICY, Need.SERVERS)
            yield Claim("cluster.colocated", needs, shared, "set cluster.colocated=false")

    @model_validator(mode="after")
    def _numbers_divide(self) -> "ClusterConfig":
        if self.colocated and self.samplers % self.learners:
            raise ValueError(
                f"cluster.colocated puts the same number of servers beside each learner, and "
                f"cluster.samplers = {self.samplers} cannot be divided among cluster.learners = "
                f"{self.learners}: change one of them, or set cluster.colocated=false"
            )
        parts = {"sequence_ranks": self.sequence_ranks, "replicas": self.replicas}
        for key, count in parts.items():
            if self.learners % count:
                raise ValueError(
                    f"cluster.{key} is {count}, which does not divide cluster.learners = "
                    f"{self.learners}: give a number that does"
                )
        if self.replicas > 1 and (self.expert_parallel or self.sequence_ranks > 1):
            raise ValueError(
                f"cluster.replicas is {self.replicas}, and cluster.expert_parallel and "
                "cluster.sequence_ranks divide the learners in other ways: set cluster.replicas=1, "
                "or leave the other out"
            )
        return self

    @field_validator("address")
    @classmethod
    def _address_can_be_one(cls, value: str) -> str:
        if not re.fullmatch(r"local|auto|([\w.-]+|\[[\w.:]+\]):[0-9]{1,5}", value):
            raise ValueError(
                f"cluster.address is {value!r}: give 'local', 'auto', or a head node's 'host:port'"
            )
        return value


def cluster_of(recipe: "Recipe") -> ClusterConfig:
    """The section of a recipe."""
    found = recipe.find(ClusterConfig)
    assert found is not None  # this wing is installed
    return found
