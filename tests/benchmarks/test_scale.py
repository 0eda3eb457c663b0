"""What the suite does; how fast it was is nothing to a test."""
import pytest

from benchmarks import scale


def test_a_release_that_fails_is_an_error(tmp_path, capfd):
    with pytest.raises(EOFError):  # There are no features in that folder.
        list(scale.memory('FeatureRR', 1000, tmp_path))
    assert 'FileNotFoundError' in capfd.readouterr().err
