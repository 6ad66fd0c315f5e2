"""``pear train --known`` and ``pear decide``: right-hand sides and bounds that are known for every row."""

from pathlib import Path

import numpy as np
import pytest
from command_line import run

import pear

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("highspy")

SHOP = "max\n p: 1 a + 1 b + 1 c\nst\n stock: a + b + c <= 9\nbounds\n a <= 4\n b <= 4\n c <= 4\nend\n"
ITEMS, ROWS = ("a", "b", "c"), 60


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(ROWS, 2))
    worth = np.abs(X @ draw.normal(size=(2, 3)) + 2)
    known = {"stock": draw.uniform(1, 8, ROWS), "a.ub": draw.uniform(0.5, 4, ROWS)}
    return pandas.DataFrame({"sun": X[:, 0], "wind": X[:, 1], **dict(zip(ITEMS, worth.T, strict=True)), **known})


@pytest.fixture
def folder(table, terminal):
    Path("shop.lp").write_text(SHOP)
    table.to_csv("data.csv", index=False)
    return table


def test_known_columns_train_and_decide(folder):
    done = run("train", "shop.lp", "data.csv", "--known", "stock,a.ub", "--max-epochs", 4)
    assert done.exit_code == 0, done.output
    assert "3 of its 3 costs are predicted from 2 features" in done.output
    decided = run("decide", "model.pear", "data.csv")
    assert decided.exit_code == 0, decided.output
    found = pandas.read_csv("decisions.csv")
    assert (found.sum(axis=1) <= folder["stock"] + 1e-9).all()
    assert (found["a"] <= folder["a.ub"] + 1e-9).all()
    model = pear.DecisionRegressor.load("model.pear")
    expected = model.decide(folder[["sun", "wind"]], known=folder[["stock", "a.ub"]])
    np.testing.assert_allclose(found, expected)


def test_a_long_table_has_one_known_number_in_a_group(folder):
    parts = [folder.assign(item=name, worth=folder[name], day=range(ROWS)) for name in ITEMS]
    long = pandas.concat(parts)[["day", "item", "sun", "wind", "worth", "stock"]]
    long.to_csv("long.csv", index=False)
    options = ["--groups", "day", "--variables", "item"]
    done = run("train", "shop.lp", "long.csv", "--costs", "worth", "--known", "stock", "--max-epochs", 2, *options)
    assert done.exit_code == 0, done.output
    decided = run("decide", "model.pear", "long.csv", *options)
    assert decided.exit_code == 0, decided.output
    found = pandas.read_csv("decisions.csv", index_col=0)
    assert (found.sum(axis=1).to_numpy() <= folder["stock"].to_numpy() + 1e-9).all()
    long.assign(stock=range(len(long))).to_csv("long.csv", index=False)
    refused = run("decide", "model.pear", "long.csv", *options)
    assert refused.exit_code != 0
    assert "column 'stock' of long.csv differs within a group" in refused.output


def test_wrong_known_columns_are_refused(folder):
    refused = run("train", "shop.lp", "data.csv", "--known", "stok")
    assert refused.exit_code != 0
    assert "known holds 'stok'; expected names of rows" in " ".join(refused.output.split())
    folder.drop(columns="stock").to_csv("data.csv", index=False)
    refused = run("train", "shop.lp", "data.csv", "--known", "stock")
    assert refused.exit_code != 0
    assert "data.csv has no column 'stock'" in " ".join(refused.output.split())
