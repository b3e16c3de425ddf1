from vade_jax import tables

ROWS = [("uniform", "0.5", "12"), ("vade", "0.625", "8")]


def test_a_table_for_a_page():
    assert tables.markdown(["arm", "accuracy", "seeds"], ROWS, right=(1, 2)) == (
        "| arm | accuracy | seeds |\n"
        "| --- | ---: | ---: |\n"
        "| uniform | 0.5 | 12 |\n"
        "| vade | 0.625 | 8 |"
    )


def test_no_cell_breaks_a_table():
    assert tables.markdown(["subset"], [["a|b\nc"]]).splitlines()[2:] == ["| a\\|b c |"]
