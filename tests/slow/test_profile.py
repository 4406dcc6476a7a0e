"""`make test-all` checks all examples of laws: modules of tests are imported after its Hypothesis profile is loaded."""

from tests.support.laws import examples, law


def test_laws_were_made_for_the_profile_of_this_run() -> None:
    assert law.max_examples == examples(60)
