"""Plans: what fits, what is chosen, what bounds it, what it costs; and what is refused."""

import math
from dataclasses import replace

import pytest

from turnwise.cluster.planner.hardware import GPUS, find_gpu
from turnwise.cluster.planner.memory import (
    GIB,
    USABLE,
    Training,
    learner_memory,
    least_learners,
    sampler_memory,
)
from turnwise.cluster.planner.plan import (
    Ask,
    Division,
    best_plans,
    bound_of,
    closed_form,
    costs,
    divisions,
    pace_of,
    scaled,
    timed,
)
from turnwise.cluster.planner.shapes import ModelShape
from turnwise.cluster.planner.simulation import Pace, Schedule
from turnwise.cluster.planner.speed import (
    Efficiency,
    iteration_seconds,
    update_seconds,
    weights_seconds,
)
from turnwise.cluster.planner.workload import PlannedTurn, Stated, ToolTimes, Workload
from turnwise.errors import ConfigError

QWEN3_8B = ModelShape("8b", 36, 4096, 12288, 32, 8, 128, 151936)
QWEN3_32B = ModelShape("32b", 64, 5120, 25600, 64, 8, 128, 151936)
QWEN3_30B_A3B = ModelShape("30b", 48, 2048, 768, 32, 4, 128, 151936, False, 128, 8)
LOAD = Workload(64, Stated(500, 4, 400, 300, 10, 2000).episodes(200), ToolTimes(2.0, 1.0), 0.5)
BF16 = Training(recompute=True)
WITH_REFERENCE = replace(BF16, reference=True)
ASK = Ask(QWEN3_8B, LOAD, WITH_REFERENCE, find_gpu("h100"), 16, most_staleness=1)


def test_shapes_have_the_published_numbers_of_parameters() -> None:
    assert QWEN3_8B.parameters == pytest.approx(8.19e9, rel=0.001)
    assert QWEN3_32B.parameters == pytest.approx(32.76e9, rel=0.001)
    assert QWEN3_30B_A3B.parameters == pytest.approx(30.53e9, rel=0.001)
    active = QWEN3_30B_A3B.active + QWEN3_30B_A3B.embedding
    assert active == pytest.approx(3.35e9, rel=0.01)
    assert QWEN3_8B.cache_per_token * 2 == 147_456  # 144 KiB
    assert QWEN3_8B.adapters(16) == pytest.approx(43.6e6, rel=0.01)


def test_memory_of_training_is_18_bytes_a_weight_and_16_where_it_is_sharded() -> None:
    one = learner_memory(QWEN3_8B, BF16, 1)
    assert one.weights + one.gradients + one.optimizer == 18 * QWEN3_8B.parameters
    many = learner_memory(QWEN3_8B, BF16, 8)
    sharded = many.weights + many.gradients + many.optimizer
    assert sharded == 16 * QWEN3_8B.parameters / 8
    assert many.activations == one.activations
    assert one.gathered == 0 < many.gathered
    full = learner_memory(QWEN3_8B, Training(bfloat16=False), 1)
    assert full.weights + full.gradients + full.optimizer == 16 * QWEN3_8B.parameters
    adapters = learner_memory(QWEN3_8B, Training(lora_rank=16), 1)
    assert adapters.optimizer == 8 * QWEN3_8B.adapters(16)
    assert learner_memory(QWEN3_8B, replace(BF16, reference=True), 1).weights > one.weights
    assert learner_memory(QWEN3_8B, replace(BF16, critic=True), 1).optimizer == 2 * one.optimizer


def test_what_is_offloaded_is_on_no_gpu_and_replicas_share_nothing() -> None:
    plain = learner_memory(QWEN3_8B, BF16, 8)
    moved = learner_memory(
        QWEN3_8B, replace(BF16, offload_optimizer=True, offload_activations=True), 8
    )
    optimizer, inputs = 12 * QWEN3_8B.parameters / 8, 2 * 36 * 4096 * 4096
    assert moved.host == optimizer + inputs
    assert plain.host == moved.optimizer == 0
    assert plain.total - moved.total == 8 * QWEN3_8B.parameters / 8 + inputs
    alone = learner_memory(QWEN3_8B, replace(BF16, offload_optimizer=True), 1)
    assert alone.weights + alone.gradients == 6 * QWEN3_8B.parameters
    assert learner_memory(QWEN3_8B, replace(BF16, replicas=2), 16) == plain


def test_the_number_that_an_error_names_is_enough_and_half_of_it_is_not() -> None:
    memory = 79 * GIB
    with pytest.raises(ConfigError, match=r"8b \(8\.2 billion .* give --gpus 2 or more") as told:
        least_learners(QWEN3_8B, BF16, memory, 1)
    assert "1 GPU of 79 GiB" in str(told.value)
    assert learner_memory(QWEN3_8B, BF16, 2).total <= USABLE * memory
    assert learner_memory(QWEN3_8B, BF16, 1).total > USABLE * memory
    assert least_learners(QWEN3_8B, BF16, memory, 64) == 2
    assert least_learners(QWEN3_8B, WITH_REFERENCE, memory, 64) == 4
    assert least_learners(QWEN3_8B, Training(lora_rank=16, recompute=True), memory, 64) == 1
    with pytest.raises(ConfigError, match=r"no number of GPUs is enough.*tokens_per_micro_batch"):
        least_learners(QWEN3_32B, Training(micro_batch=1 << 17), memory, 64)


def test_a_sampler_is_as_small_as_its_model_allows() -> None:
    memory = 79 * GIB
    small = sampler_memory(QWEN3_8B, memory, 4000, 16_000, 8)
    assert small.gpus == 1
    assert small.slots == int(small.cache / (4000 * 147_456))
    assert small.total <= USABLE * memory + 1
    assert sampler_memory(QWEN3_32B, memory, 4000, 16_000, 8).gpus == 2
    with pytest.raises(ConfigError, match=r"32b does not fit on 1 GPUs .* give --gpus 2 or more"):
        sampler_memory(QWEN3_32B, memory, 4000, 16_000, 1)


def test_unknown_gpus_are_refused_with_the_nearest() -> None:
    assert find_gpu("H100") is find_gpu("h100-80gb") is GPUS["h100"]
    assert find_gpu("A100-40GB").memory == 39
    with pytest.raises(ConfigError, match="no GPU is called 'h1000': did you mean h100"):
        find_gpu("h1000")
    with pytest.raises(ConfigError, match="known are t4, a10"):
        find_gpu("zzz")


def test_decoding_one_sequence_is_reading_the_weights() -> None:
    """The roofline: bandwidth alone for one sequence, arithmetic as well for very many."""
    perfect = Efficiency(bandwidth=1.0, prefill=1.0, iteration=0.0)
    alone = Workload(1, [(PlannedTurn(0, 1, 0),)])
    gpu = find_gpu("h100")
    seconds = iteration_seconds(QWEN3_8B, gpu, 1, alone, perfect)
    assert seconds(1) == pytest.approx(2 * QWEN3_8B.parameters / 3.35e12, rel=0.01)
    assert seconds(10_000) == pytest.approx(1e4 * 2 * QWEN3_8B.active / 989e12, rel=0.01)
    sparse = iteration_seconds(QWEN3_30B_A3B, gpu, 1, alone, perfect)
    assert sparse(1) < 0.2 * sparse(64)


def test_learning_is_six_operations_for_each_weight_and_token() -> None:
    perfect = Efficiency(training=1.0, step=0.0)
    load = Workload(100, [(PlannedTurn(0, 1, 0),)])
    found = update_seconds(QWEN3_8B, find_gpu("h100"), 1, load, Training(), perfect)
    assert found == pytest.approx(100 * 6 * QWEN3_8B.active / 989e12, rel=0.01)
    eight = update_seconds(QWEN3_8B, find_gpu("h100"), 8, load, Training(), perfect)
    assert eight == pytest.approx(found / 8)
    again = update_seconds(QWEN3_8B, find_gpu("h100"), 1, load, BF16, perfect)
    assert again == pytest.approx(found * 8 / 6, rel=0.01)


def test_adapters_are_cheap_to_send() -> None:
    whole = weights_seconds(QWEN3_8B, find_gpu("h100"), BF16, False, Efficiency(update=0.0))
    lora = Training(lora_rank=16)
    adapters = weights_seconds(QWEN3_8B, find_gpu("h100"), lora, False, Efficiency(update=0.0))
    assert whole == pytest.approx(16.38 / 25, rel=0.01)
    assert adapters < whole / 100


def test_the_best_plan_is_the_fastest_of_all_divisions_that_are_simulated() -> None:
    first, *others = best_plans(ASK)
    assert all(first.timing.step * 0.98 <= other.timing.step for other in others)
    every = {one: timed(ASK, one).step for one in divisions(ASK)}
    assert first.timing.step <= 1.05 * min(every.values())
    division = first.division
    assert division.learners + division.samplers <= 16 or division.colocated
    assert first.bound in {*first.gains, "all alike"}
    assert first.timing == best_plans(ASK, 1)[0].timing


def test_parts_that_are_saturated_work_all_the_time() -> None:
    """What bounds a plan is what is busy: the driver with many short episodes, places of tools."""
    (calm,) = best_plans(ASK, 1)
    assert calm.busy["driver"] < 0.01
    assert calm.busy["tools"] == 0
    assert calm.calls == pytest.approx(64 * LOAD.calls * 2 / calm.timing.step)
    turns = 64 * LOAD.turns
    slow = Efficiency(driver=10 * calm.timing.step / turns)
    (full,) = best_plans(replace(ASK, efficiency=slow), 1)
    assert full.bound == "driver"
    assert full.busy["driver"] == pytest.approx(1.0, abs=0.1)
    (few,) = best_plans(replace(ASK, tool_slots=2), 1)
    assert few.bound == "tools"
    assert 0.8 < few.busy["tools"] <= 1.05


def test_new_weights_take_about_as_long_as_others_have_published() -> None:
    """32B over 16 and 16 GPUs: about 2 s by NCCL (huggingface/trl, issue 7103)."""
    found = weights_seconds(QWEN3_32B, find_gpu("h100"), BF16, False, Efficiency())
    assert 2.0 / 2 <= found <= 2.0 * 2


def test_slow_tools_and_slow_drivers_are_found() -> None:
    slow = replace(ASK, workload=replace(LOAD, tools=ToolTimes(120.0, 0.5)))
    assert best_plans(slow, 1)[0].bound == "tools"
    busy = replace(ASK, efficiency=Efficiency(driver=2.0))
    assert best_plans(busy, 1)[0].bound == "driver"
    full = replace(ASK, efficiency=Efficiency(store=1e-4))
    assert best_plans(full, 1)[0].bound == "object store"
    far = replace(ASK, efficiency=Efficiency(update=500.0))
    assert best_plans(far, 1)[0].bound == "weights"
    assert bound_of({"sampling": 1.04, "learning": 1.05}) == "all alike"


def test_a_scaled_step_takes_about_as_long_as_the_whole_one() -> None:
    load = replace(LOAD, episodes=2048)
    pace = Pace(lambda n: 0.01 + 0.0002 * n, update=60.0, samplers=32, slots=64, driver=0.001)
    for schedule, distance in ((Schedule(), 0.2), (Schedule(1, False), 0.1)):
        whole = scaled(load, pace, schedule, most_turns=1 << 30).step
        found = scaled(load, pace, schedule).step
        assert found == pytest.approx(whole, rel=distance)
        if not schedule.staleness:
            assert found <= whole  # the slowest of fewer episodes is less slow


def test_the_closed_form_is_not_far_from_the_simulation() -> None:
    division = Division(4, 12, False, 1)
    assert closed_form(ASK, division) == pytest.approx(timed(ASK, division).step, rel=0.35)
    assert pace_of(ASK, division).samplers == 12


def test_costs_are_of_all_gpus_and_of_tool_calls() -> None:
    timing = timed(ASK, Division(4, 12, False, 1))
    assert costs(ASK, timing) == (None, None)
    step, success = costs(replace(ASK, gpu_hour=2.0, tool_call=0.01), timing)
    expected = 2.0 * 16 * timing.step / 3600 + 0.01 * LOAD.calls * LOAD.episodes
    assert step == pytest.approx(expected)
    assert success == pytest.approx(expected / 32)
    unknown = replace(ASK, gpu_hour=2.0, workload=replace(LOAD, success=None))
    assert costs(unknown, timing)[1] is None


def test_stated_episodes_have_their_means() -> None:
    load = Workload(8, Stated(100, 6, 200, 50, 1000, 100_000, 0.3).episodes(4000))
    assert load.turns == pytest.approx(6, rel=0.05)
    assert load.sampled == pytest.approx(6 * 200, rel=0.05)
    assert load.read == pytest.approx(100 + 5 * 50, rel=0.05)
    assert load.calls == pytest.approx(load.turns - 1)
    assert math.isclose(load.tokens, load.read + load.sampled)
    assert len(load.draw(3, 0)) == 8
    assert load.draw(3, 0) == load.draw(3, 0) != load.draw(4, 0)
