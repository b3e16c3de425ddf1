"""What answers a run's prompts, made of its settings."""

from vade_jax.run import engines


def test_runs_that_share_a_place_for_weights_have_a_folder_each(tmp_path):
    """Else two runs at one step would write the same version, and servers would load the other's."""
    shared = str(tmp_path / "shared")
    one, other = (engines._sync_directory(shared, str(tmp_path / x / "run")) for x in "ab")
    assert one != other and one.startswith(shared) and other.startswith(shared)
    assert one == engines._sync_directory(shared, str(tmp_path / "a" / ".." / "a" / "run"))
    assert engines._sync_directory("", "runs/a") == "runs/a/weights"
