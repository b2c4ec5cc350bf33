"""The way of the settings through the core, which stays short."""

from scripts.settings_walk import climbs, rooms, walk


def test_a_recipe_is_passed_on_through_few_rooms_and_seldom_upwards() -> None:
    places = walk()
    entered = rooms(places)
    assert ("turnwise.parts.first_checks", "known_run") in places
    assert ("turnwise.scaffolds.registry", "make_scaffold") in places
    assert len(set(entered)) <= 30
    assert climbs(entered) <= 15


def test_a_climb_is_a_move_to_a_higher_floor() -> None:
    assert climbs(["turnwise.api", "turnwise.config.loading", "turnwise.parts.checks"]) == 1
    assert climbs(["turnwise.models.load", "turnwise.algorithms.registry"]) == 0
