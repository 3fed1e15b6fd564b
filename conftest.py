"""What every test of the repository shares."""

from hypothesis import settings

# A machine that is busy is no reason for a test to fail.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
