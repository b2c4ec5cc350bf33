"""For all tests: property tests try the same examples every time, and have no deadline, since test
machines are shared."""

from hypothesis import settings

settings.register_profile("turnwise", deadline=None, derandomize=True)
settings.load_profile("turnwise")
