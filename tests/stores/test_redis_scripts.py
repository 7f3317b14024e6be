"""What the scripts say of themselves; what they do is held by test_redis.py on real servers."""

from hashlib import sha1

from cachegate.stores.redis_scripts import BEAT, COMPARE_AND_SET


def test_a_script_is_known_by_the_digest_of_its_text() -> None:
    assert [script.digest for script in (BEAT, COMPARE_AND_SET)] == [
        sha1(script.text.encode(), usedforsecurity=False).hexdigest() for script in (BEAT, COMPARE_AND_SET)
    ]


def test_scripts_touch_the_key_that_they_are_given_and_no_other() -> None:
    for script in (BEAT, COMPARE_AND_SET):
        calls = [line for line in script.text.splitlines() if "redis.call(" in line and "'TIME'" not in line]
        assert calls
        assert all("KEYS[1]" in call for call in calls)
