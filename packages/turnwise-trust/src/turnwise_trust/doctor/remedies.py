"""Remedies: what to do about a cause, in words and with each framework's own keys.

Keys: turnwise, TRL 1.16 (`GRPOConfig`), verl 0.8 (`trainer/config`), prime-rl 0.8 (`configs/`).
"""

from collections.abc import Mapping

NAMES = {"turnwise": "turnwise", "trl": "TRL", "verl": "verl", "prime-rl": "prime-rl"}

ADVICE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "ungraded episodes": (
        "Mend what fails (sandbox, grader, time limits) before training on, and count such "
        "episodes as ungraded, never as 0.",
        {"turnwise": "turnwise show RUN --outcome grader_error; rollout.max_seconds"},
    ),
    "truncated answers": (
        "Give answers more room, or ask for shorter ones; leave what is cut off out of the loss.",
        {
            "turnwise": "rollout.max_turn_tokens, max_tokens, max_turns",
            "trl": "max_completion_length, mask_truncated_completions",
            "verl": "data.max_response_length",
            "prime-rl": "orchestrator.train.sampling.max_completion_tokens, seq_len",
        },
    ),
    "malformed turns": (
        "Begin with a cold start on demonstrations, or choose a syntax that the model knows.",
        {"turnwise": "sft.steps; scaffold.name"},
    ),
    "dead groups": (
        "Take tasks that are neither always nor never solved, larger groups, or more temperature.",
        {
            "turnwise": 'curriculum.kind = "by_success", train.group_size, rollout.temperature',
            "trl": "num_generations, temperature",
            "verl": "actor_rollout_ref.rollout.n, actor_rollout_ref.rollout.temperature",
            "prime-rl": "orchestrator.group_size, orchestrator.train.sampling.temperature",
        },
    ),
    "all failed": (
        "Take easier tasks, imitate first, or pay for parts of the way; more steps will not help.",
        {
            "turnwise": "sft.steps, reward.parts, train.group_size",
            "trl": "num_generations; a further function in reward_funcs",
            "verl": "actor_rollout_ref.rollout.n; custom_reward_function",
            "prime-rl": "orchestrator.group_size; a further reward of the taskset",
        },
    ),
    "all solved": (
        "Take harder tasks, or leave out those that are always solved.",
        {
            "turnwise": 'curriculum.kind = "by_success"',
            "trl": "train_dataset",
            "verl": "data.train_files",
            "prime-rl": "orchestrator.train.source",
        },
    ),
    "constant reward": (
        "Call the reward function by hand on a right and a wrong answer: it gives both the same.",
        {
            "turnwise": "turnwise audit ENVIRONMENT",
            "trl": "reward_funcs, and the columns that they are given",
            "verl": "custom_reward_function, data_source",
            "prime-rl": "the rewards of the taskset",
        },
    ),
    "parroting": (
        "Have the verifier fail an answer that only repeats what a tool returned.",
        {"turnwise": "turnwise audit ENVIRONMENT; trajectory.answer in verify()"},
    ),
    "numbers that are not finite": (
        "Go back to the last checkpoint before that step; lower the learning rate, look at "
        "float16, at divisions by a spread of 0, and at rewards that are NaN.",
        {
            "turnwise": "learning.learning_rate",
            "trl": "learning_rate, bf16",
            "verl": "actor_rollout_ref.actor.optim.lr",
            "prime-rl": "trainer.optim.lr",
        },
    ),
    "learning rate 0": (
        "Set a learning rate above 0, and look at the schedule: too few steps for its warm-up, "
        "or an end that is reached too soon.",
        {
            "turnwise": "learning.learning_rate, learning.warmup_steps",
            "trl": "learning_rate, warmup_steps, lr_scheduler_type, max_steps",
            "verl": "actor_rollout_ref.actor.optim.lr, lr_warmup_steps, total_training_steps",
            "prime-rl": "trainer.optim.lr, trainer.scheduler",
        },
    ),
    "learning rate too low": (
        "Raise the learning rate by factors of 3 until the entropy or the divergence moves.",
        {
            "turnwise": "learning.learning_rate",
            "trl": "learning_rate",
            "verl": "actor_rollout_ref.actor.optim.lr",
            "prime-rl": "trainer.optim.lr",
        },
    ),
    "gradient 0": (
        "See that what is trained is in the loss: adapters that are attached, a mask that is not "
        "all 0, advantages that reach the tokens.",
        {
            "turnwise": "model.lora_rank",
            "trl": "peft_config, scale_rewards",
            "verl": "actor_rollout_ref.model.lora_rank",
            "prime-rl": "trainer.model.lora",
        },
    ),
    "policy/clip_fraction": (
        "Make fewer updates on the same samples, or smaller ones, and see that old "
        "log-probabilities are those of the weights that sampled.",
        {
            "turnwise": "learning.updates_per_step, learning.epochs, algorithm.clip_high",
            "trl": "num_iterations, steps_per_generation, epsilon, epsilon_high",
            "verl": "actor_rollout_ref.actor.ppo_epochs, clip_ratio_low, clip_ratio_high",
        },
    ),
    "correction/rejected_fraction": (
        "Train on fresher samples, and see that engine and learner agree.",
        {"turnwise": "train.max_staleness, algorithm.correction"},
    ),
    "policy/filtered_fraction": (
        "Loosen the filter of tokens.",
        {"turnwise": "algorithm.token_filter"},
    ),
    "update size": (
        "Lower the learning rate, or make fewer updates on the same samples.",
        {
            "turnwise": "learning.learning_rate, learning.updates_per_step, learning.epochs",
            "trl": "learning_rate, num_iterations, beta",
            "verl": "actor_rollout_ref.actor.optim.lr, actor_rollout_ref.actor.ppo_epochs",
            "prime-rl": "trainer.optim.lr",
        },
    ),
    "exploding gradient": (
        "Lower the learning rate, clip the gradient, and go back to a checkpoint before the first "
        "spike.",
        {
            "turnwise": "learning.learning_rate, learning.max_gradient_norm",
            "trl": "learning_rate, max_grad_norm",
            "verl": "actor_rollout_ref.actor.optim.lr, actor_rollout_ref.actor.grad_clip",
            "prime-rl": "trainer.optim.lr, trainer.optim.max_norm",
        },
    ),
    "engine and learner": (
        "See that new weights reach the engine and that both compute alike (type, kernels, "
        "sampling masks); until then correct by importance weights.",
        {
            "turnwise": "engine.parity_bound, algorithm.correction, model.dtype",
            "trl": "vllm_importance_sampling_correction, vllm_importance_sampling_mode",
            "verl": "algorithm.rollout_correction.rollout_is",
            "prime-rl": "trainer.loss, orchestrator.max_off_policy_steps",
        },
    ),
    "staleness": (
        "Let samples wait less: fewer steps ahead, or more machines that learn.",
        {
            "turnwise": "train.max_staleness",
            "verl": "async_training.staleness_threshold",
            "prime-rl": "orchestrator.max_off_policy_steps",
        },
    ),
    "divergence from the reference": (
        "Lower the learning rate or hold the policy to its reference; it has left the language "
        "that it knew.",
        {
            "turnwise": "algorithm.kl_coefficient, learning.learning_rate",
            "trl": "beta, learning_rate, sync_ref_model",
            "verl": "actor_rollout_ref.actor.use_kl_loss, actor_rollout_ref.actor.kl_loss_coef",
            "prime-rl": "trainer.loss.kl_tau",
        },
    ),
    "entropy collapse": (
        "Clip higher above, sample hotter, hold the most certain tokens back, or go back to a "
        "checkpoint with entropy and a lower learning rate.",
        {
            "turnwise": "algorithm.clip_high = 0.28, algorithm.name = clip_cov or kl_cov, "
            "rollout.temperature",
            "trl": "epsilon_high = 0.28, temperature, learning_rate",
            "verl": "actor_rollout_ref.actor.clip_ratio_high = 0.28, entropy_coeff",
            "prime-rl": "trainer.optim.lr, orchestrator.train.sampling.temperature",
        },
    ),
    "entropy explosion": (
        "Take a bonus for entropy out, and lower the learning rate; see that padding and tool "
        "output are not trained on.",
        {
            "turnwise": "algorithm.entropy_coefficient, learning.learning_rate",
            "trl": "learning_rate, beta",
            "verl": "actor_rollout_ref.actor.entropy_coeff",
            "prime-rl": "trainer.optim.lr",
        },
    ),
    "Echo Trap": (
        "Go back to the checkpoint of the best step; train on the groups whose rewards differ "
        "most, with a lower learning rate.",
        {
            "turnwise": 'monitor.echo_trap.reaction = "roll_back", algorithm.name = "starpo_s"',
            "trl": "learning_rate, temperature, repetition_penalty; save_steps",
            "verl": "actor_rollout_ref.actor.optim.lr, actor_rollout_ref.rollout.temperature",
            "prime-rl": "trainer.optim.lr, orchestrator.train.sampling.temperature",
        },
    ),
    "length explosion": (
        "Do not pay for length by accident: average the loss over tokens of the batch, and take "
        "reward off what is overlong.",
        {
            "turnwise": 'algorithm.reward_shaping = "overlong", algorithm.aggregation',
            "trl": 'loss_type = "dapo" or "dr_grpo", get_soft_overlong_punishment',
            "verl": "actor_rollout_ref.actor.loss_agg_mode",
            "prime-rl": "a cost for length as a reward of the taskset",
        },
    ),
    "length collapse": (
        "See whether a part of the reward, or the average over tokens, pays for being short.",
        {
            "turnwise": "reward.parts, reward.costs, algorithm.aggregation",
            "trl": "loss_type, reward_weights",
            "verl": "actor_rollout_ref.actor.loss_agg_mode",
            "prime-rl": "the weights of the taskset's rewards",
        },
    ),
    "tool calls vanish": (
        "See that tool output is masked, that failed calls are not all that is paid less, and "
        "that a task cannot be solved without tools; imitate calls first.",
        {"turnwise": "sft.steps, learning.mask_observations", "trl": "tools"},
    ),
    "tool errors": (
        "Read the errors: a schema that the prompt does not show, arguments of another type, or "
        "tools that fail by themselves.",
        {"turnwise": "turnwise show RUN; turnwise audit ENVIRONMENT"},
    ),
    "format gaming": (
        "Pay for the form only after the answer is right, or much less, and stop paying for it "
        "once it is learned.",
        {
            "turnwise": 'reward.parts.NAME.gate = "success", reward.parts.NAME.schedule',
            "trl": "reward_weights",
            "verl": "custom_reward_function",
            "prime-rl": "the weights of the taskset's rewards",
        },
    ),
    "reward without success": (
        "Read the best-paid episodes: the reward pays for something that is not the task.",
        {
            "turnwise": "turnwise audit ENVIRONMENT; reward.parts, reward.dominance",
            "trl": "reward_funcs, reward_weights",
            "verl": "custom_reward_function",
            "prime-rl": "the rewards of the taskset",
        },
    ),
    "reward noise": (
        "Grade one answer many times: mend the verifier, take the mean of several grades, or "
        "larger groups.",
        {
            "turnwise": "turnwise audit ENVIRONMENT; train.group_size",
            "trl": "reward_funcs, num_generations",
            "verl": "custom_reward_function, actor_rollout_ref.rollout.n",
            "prime-rl": "orchestrator.group_size",
        },
    ),
    "tool-call hacking": (
        "Do not pay for calls themselves; take a cost for those beyond need.",
        {"turnwise": "reward.costs, rollout.max_tool_calls", "trl": "max_tool_calling_iterations"},
    ),
    "held-out success": (
        "Go back to the checkpoint of the best held-out success, audit the verifier, and take "
        "more tasks.",
        {
            "turnwise": "turnwise audit ENVIRONMENT; evaluation.during_rl.every",
            "trl": "eval_strategy, load_best_model_at_end",
            "verl": "trainer.test_freq, data.train_files",
            "prime-rl": "orchestrator.eval.interval",
        },
    ),
    "evaluation at its ceiling": (
        "Evaluate on harder tasks: on these no progress can be seen.",
        {"turnwise": "evaluation.during_rl.tasks"},
    ),
    "learning signal": ("See turnwise show RUN.", {}),
}
"""Advice, and keys by framework."""


def remedy(why: str, framework: str) -> str:
    """Advice, with the keys of the framework that wrote the log, and with turnwise's."""
    text, keys = ADVICE[why]
    named = (name for name in dict.fromkeys((framework, "turnwise")) if name in keys)
    return " ".join([text, *(f"{NAMES[name]}: {keys[name]}." for name in named)])
