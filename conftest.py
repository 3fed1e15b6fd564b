"""What every test of the repository shares."""

import os

from hypothesis import settings

# A machine that is busy is no reason for a test to fail. Random examples are for those who look for bugs: in CI every
# run tries the same ones, so that a change is judged by what it changes.
settings.register_profile("patient", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("patient")
