"""The wing's resources: processes beside the run's own, for as long as a run takes.

Ray keeps them, and is imported where a recipe asks for some (`nodes.py`); ranks of the learner on
this machine are plain processes.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import Recipe
from turnwise.engines.base import ServerPlaces
from turnwise.errors import ConfigError
from turnwise.forward.hidden import why_not_packed
from turnwise.forward.images import reader_of
from turnwise.forward.routing import experts_of
from turnwise.learning.learner import Learner, MakeOffline, OfflineLearner
from turnwise.learning.signals.makers import Words, load_teachers
from turnwise.parts.one_process import load_reference
from turnwise.parts.resources import Resources
from turnwise.storage.run_folder import with_whole_paths
from turnwise.threads import processors
from turnwise_cluster.learners.launcher import OnNodes
from turnwise_cluster.learners.learner import DistributedLearner, DistributedOffline
from turnwise_cluster.learners.team import Team
from turnwise_cluster.placement import ProcessSpec
from turnwise_cluster.settings import cluster_of


@dataclass(frozen=True)
class ClusterResources(Resources):
    """The processes that a recipe asks for, to be started. With one learner it is the core's."""

    ranks: OnNodes | None = None
    """Starts the learner's other ranks; None where they are processes of this machine."""
    folder: Path | None = None
    """The run's; ranks write there what they print."""

    def check(self, recipe: Recipe, model: PreTrainedModel) -> None:
        """Raise ConfigError for a model that several processes cannot train, or with too few
        GPUs."""
        check_model(recipe, model)

    def learner(
        self,
        recipe: Recipe,
        algorithm: Algorithm,
        model: PreTrainedModel,
        words: Words | None,
        before_rl: Path | None,
    ) -> Learner:
        if cluster_of(recipe).learners == 1:
            return super().learner(recipe, algorithm, model, words, before_rl)
        reference = load_reference(recipe, algorithm, before_rl, in_files=True)
        teachers = load_teachers(recipe, recipe.model.device, in_files=True)
        team = self._team(recipe, model)
        return DistributedLearner(team, recipe, model, reference, words, teachers)

    def offline_learner(
        self, recipe: Recipe, model: PreTrainedModel, make: MakeOffline
    ) -> OfflineLearner:
        if cluster_of(recipe).learners == 1:
            return super().offline_learner(recipe, model, make)
        return DistributedOffline(self._team(recipe, model), recipe, model, make)

    def _team(self, recipe: Recipe, model: PreTrainedModel) -> Team:
        """The processes that a recipe's learner has, of which this one is the first."""
        assert self.folder is not None  # learners are a run's
        config = cluster_of(recipe)
        return Team(
            config.learners,
            model.device,
            max(1, recipe.threads // config.learners),
            config.seconds,
            self.folder / "learners",
            self.ranks,
            config.replicas,
            config.start_seconds,
        )


@contextmanager
def allocated(recipe: Recipe, folder: Path | None = None) -> Iterator[Resources]:
    """Inside, there are places for the processes that a recipe asks for, and with ranks or servers
    on GPUs this process sees the one that is its own. Raises ConfigError for what several processes
    cannot do, where there is no such cluster, it is too small, or nodes do not see the run's folder
    (of ranks and servers) or the recipe's own files (of workers)."""
    config = cluster_of(recipe)
    check_cluster(recipe)
    on_gpus = _on_gpus(recipe)
    kinds = kinds_of(recipe, on_gpus)
    if not kinds:
        yield ClusterResources(colocated=config.colocated, folder=folder)
        return
    from turnwise_cluster.nodes import connected

    check_machine(recipe, on_gpus, folder)
    with ExitStack() as stack:
        cluster = stack.enter_context(connected(config, list(kinds.values())))
        places = {name: stack.enter_context(cluster.places(kind)) for name, kind in kinds.items()}
        if config.samplers and config.colocated:
            places["samplers"] = places["learners"].colocate(_samplers(recipe, int(on_gpus)))
        for name, each in places.items():
            each.check(_own_files(recipe, name), shared_folder(name, folder))
        workers, ranks, servers = None, None, None
        if "learners" in places:
            places["learners"].take_own()
            ranks = OnNodes(cluster.host, places["learners"])
        if "samplers" in places:
            hold, host = places["samplers"].hold, "127.0.0.1" if config.address == "local" else ""
            servers = ServerPlaces(config.samplers, hold, config.start_seconds, host)
        if "workers" in places:
            from turnwise_cluster.workers.pool import RayLauncher, WorkerPool

            launcher = RayLauncher(cluster.host, places["workers"])
            workers = WorkerPool(launcher, config.workers, config.start_seconds)
        yield ClusterResources(workers, servers, config.colocated, ranks, folder)


def shared_folder(name: str, folder: Path | None) -> Path | None:
    """The folder that all nodes with processes of a kind have to see: there ranks write, and
    servers read weights; None where there is none."""
    shares = name in ("learners", "samplers")
    return folder.absolute() if folder is not None and shares else None


def kinds_of(recipe: Recipe, on_gpus: bool) -> dict[str, ProcessSpec]:
    """The processes that a recipe has on a cluster, by their keys, in the order in which they get
    places: those that need GPUs first, so that no others take the CPUs beside them. With servers on
    GPUs, one learner has a place too: else its GPU would be a server's. Servers that are colocated
    get no places, since learners have them."""
    config = cluster_of(recipe)
    found, gpus = {}, int(on_gpus)
    several = config.learners > 1 and config.address != "local"
    colocated = bool(config.samplers) and config.colocated
    if several or colocated or (config.samplers and on_gpus):
        cpus, sharing = max(1, recipe.threads // config.learners), _sharing(recipe)
        needs = (config.learners, cpus, gpus)
        found["learners"] = ProcessSpec(
            "cluster.learners", *needs, strategy="PACK", first_here=True, sharing=sharing
        )
    if config.samplers and not colocated:
        found["samplers"] = _samplers(recipe, gpus)
    if config.workers:
        found["workers"] = ProcessSpec("cluster.workers", config.workers)
    return dict(sorted(found.items(), key=lambda each: not each[1].gpus))


def _samplers(recipe: Recipe, gpus: int) -> ProcessSpec:
    """The servers of a recipe on nodes, on so many GPUs each where it does not say; beside learners
    they need no CPUs of their own, as they take turns."""
    config = cluster_of(recipe)
    if config.colocated:
        return ProcessSpec("cluster.samplers", config.samplers, 0, gpus, sharing=_sharing(recipe))
    gpus = recipe.token_engine.gpus_per_server or gpus
    return ProcessSpec("cluster.samplers", config.samplers, 1 if gpus else recipe.threads, gpus)


def _sharing(recipe: Recipe) -> int:
    """The processes in a learner's place: itself, and the servers beside it."""
    config = cluster_of(recipe)
    return 1 + (config.samplers // config.learners if config.colocated else 0)


def _own_files(recipe: Recipe, name: str) -> list[str]:
    """The files and folders of a recipe that processes of a kind read: what an environment is made
    of, by workers."""
    if name != "workers":
        return []
    whole = with_whole_paths(recipe)
    parts = (whole.environment, whole.scaffold, whole.reward)
    texts = _texts([part.model_dump() for part in parts if part])
    paths = {text.rpartition(":")[0] if ".py:" in text else text for text in texts}
    return sorted(path for path in paths if os.path.isabs(path) and os.path.exists(path))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else ():
        yield from _texts(each)
    for each in value if isinstance(value, list | tuple) else ():
        yield from _texts(each)


def check_machine(recipe: Recipe, on_gpus: bool, folder: Path | None = None) -> None:
    """Raise ConfigError for more servers than this machine has cores, where they are all here, for
    several learners on the same GPUs, and for servers on nodes that have no folder in common with
    the run."""
    config, cores = cluster_of(recipe), len(processors())
    if config.address != "local" and config.samplers and folder is None:
        raise ConfigError(
            "servers on the nodes of a cluster read weights from a folder that all of them share: "
            "name one with --out"
        )
    if config.address != "local" or not config.samplers:
        return
    if on_gpus and config.learners > 1 and not config.colocated:
        raise ConfigError(
            f"cluster.learners is {config.learners} and cluster.samplers {config.samplers}, whose "
            "GPUs Ray has to deal out together: start it with `ray start --head`, and set "
            "cluster.address=auto"
        )
    if not on_gpus and config.samplers > cores:
        raise ConfigError(
            f"cluster.samplers is {config.samplers}, and this machine has {cores} cores: lower it, "
            "or name a cluster of more machines with cluster.address"
        )


def _on_gpus(recipe: Recipe) -> bool:
    """Whether the model of a recipe with such processes will be on a GPU; none of them is touched,
    since this process may be given another one."""
    config = cluster_of(recipe)
    several = config.learners > 1 and config.address != "local"
    if recipe.model.device == "cpu" or not (config.samplers or several):
        return False
    return torch.cuda.device_count() > 0


def check_cluster(recipe: Recipe) -> None:
    """Raise ConfigError for what only one process can do; loads nothing."""
    count = cluster_of(recipe).learners
    for sentence, given in _done_alone(recipe).items():
        if given and count > 1:
            raise ConfigError(
                f"cluster.learners is {count}, but {sentence}: set cluster.learners=1, or leave "
                "the other out"
            )


def _done_alone(recipe: Recipe) -> dict[str, bool]:
    return {
        "train.steps, sft.steps and preferences.steps are 0, which leaves nothing to do together": (
            not (recipe.train.steps or recipe.sft.steps or recipe.policy_updates)
        ),
        "adapters that servers get as merged weights, which one process would have to hold "
        "(engine.transport=adapters sends them alone)": (
            recipe.token_engine.merges_adapters and bool(recipe.model.lora_rank)
        ),
    }


def check_model(recipe: Recipe, model: PreTrainedModel) -> None:
    """Raise ConfigError for a model that several processes cannot train, or with too few GPUs."""
    count = cluster_of(recipe).learners
    if count == 1:
        return
    _check_slices(recipe, model)
    _check_experts(recipe, model)
    device, gpus = model.device, torch.cuda.device_count()
    if device.type == "cuda" and device.index:
        raise ConfigError(
            f"cluster.learners is {count}, one for each GPU, and model.device is {device}: leave "
            "it out"
        )
    if device.type == "cuda" and cluster_of(recipe).address == "local" and gpus < count:
        raise ConfigError(
            f"cluster.learners is {count}, one for each GPU, and this machine has {gpus}: lower "
            "it, or name a cluster of several machines (cluster.address)"
        )


def _check_slices(recipe: Recipe, model: PreTrainedModel) -> None:
    slices = cluster_of(recipe).sequence_ranks
    if slices == 1:
        return
    heads = int(model.config.get_text_config().num_attention_heads)
    reason = why_not_packed(model, recipe.learning.autocast)
    if reader_of(model) is not None:
        reason = "it reads images, which take the place of whole rows' tokens"
    if heads % slices:
        reason = f"its {heads} heads of attention do not divide by that"
    if reason:
        raise ConfigError(
            f"cluster.sequence_ranks is {slices}, and rows of model {recipe.model.name} cannot be "
            f"computed in slices: {reason}. Set cluster.sequence_ranks=1"
        )


def _check_experts(recipe: Recipe, model: PreTrainedModel) -> None:
    if not cluster_of(recipe).expert_parallel:
        return
    counts = [count for part in model.modules() for _, count in experts_of(part)]
    reasons = {
        f"model {recipe.model.name} has no experts": not counts,
        f"its {max(counts, default=0)} experts do not divide by cluster.learners": any(
            count % cluster_of(recipe).learners for count in counts
        ),
        "weights in bfloat16 have not been tried with it (model.dtype=float32, with "
        "learning.compute_dtype=bfloat16, is)": recipe.model.dtype != "float32",
    }
    for reason, given in reasons.items():
        if given:
            raise ConfigError(
                f"cluster.expert_parallel is true, but {reason}: set cluster.expert_parallel=false"
            )
