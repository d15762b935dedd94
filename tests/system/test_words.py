from cerebro_elastic.system.words import counted


def test_one_is_counted_in_the_singular() -> None:
    assert [counted(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert counted(2, "try", "tries") == "2 tries"
