"""How often something costly may be done."""

from gangline.queueing.token_bucket import TokenBucket


def test_a_burst_is_allowed_at_once_and_then_as_many_as_time_has_passed() -> None:
    bucket = TokenBucket(per_second=2.0, burst=3)

    assert [bucket.take(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert [bucket.take(now) for now in (10.25, 10.5, 10.75, 11.0)] == [False, True, False, True]


def test_a_long_time_without_use_allows_no_more_than_a_burst() -> None:
    bucket = TokenBucket(per_second=2.0, burst=3)
    bucket.take(0.0)

    assert [bucket.take(1e6) for _ in range(4)] == [True, True, True, False]
