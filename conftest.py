"""What every test of the repository shares."""

import gc
import os

from hypothesis import settings

from gangline.process.memory import collect_rarely

# A machine that is busy is no reason for a test to fail. Random examples are for those who look for bugs: in CI every
# run tries the same ones, so that a change is judged by what it changes, and more of them than the inner loop does.
settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("thorough" if os.environ.get("CI") else "quick")

collect_rarely()


def pytest_collection_finish() -> None:
    """What the thousands of collected tests consist of stays: no collection of garbage need walk it."""
    gc.collect()
    gc.freeze()
