"""What is remembered about pods has a bound, and what was kept last stays."""

from gangline_plugins.latest import Latest


def test_the_entry_that_was_kept_first_goes() -> None:
    latest = Latest[str, int](2)
    for number, key in enumerate(("a", "b", "a", "c")):
        latest.keep(key, number)
    assert list(latest.items()) == [("a", 2), ("c", 3)]
