"""For all tests: examples of property tests have no deadline, since test machines are shared."""

from hypothesis import settings

settings.register_profile("turnwise", deadline=None)
settings.load_profile("turnwise")
