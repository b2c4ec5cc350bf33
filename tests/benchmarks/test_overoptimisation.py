"""The table of the study of a reward model: each line is of its own seed."""

from typing import Any

from overoptimisation import markdown


def test_a_line_has_the_seed_of_its_run() -> None:
    run: dict[str, Any] = {
        "reward_model": {"accuracy": 0.75, "ranking": 0.8},
        "kl": [0.0, 2.0],
        "by_model": [0.25, 0.5],
        "success": [0.5, 0.75, 0.25],
        "best_of": [[0.0, 0.5], [1.2, 0.625]],
        "heldout": [[0.5, 0.4, 0.6], [0.25, 0.2, 0.3]],
    }
    *_, first, second = markdown({"frozen": [{"seed": 3, **run}, {"seed": 7, **run}]}).splitlines()
    assert first.startswith("| frozen | 3 | 75.0%, ranks 0.80 | 50.0%, 75.0%, 25.0% |")
    assert second.startswith("| frozen | 7 |")
