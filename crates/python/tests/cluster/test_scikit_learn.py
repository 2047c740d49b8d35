"""scikit-learn on a cluster, through joblib: estimators share one array across nodes."""

import time

import comem
import numpy as np
import pytest
from comem._plot import arrays_of

NODES = 3
sklearn = pytest.importorskip("sklearn", reason="SKIP: Python clusters: scikit-learn is not installed")
joblib = pytest.importorskip("joblib", reason="SKIP: Python clusters: joblib is not installed")


@pytest.fixture(scope="module")
def c():
    comem.register_joblib()
    with comem.Cluster(NODES) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def data(c):
    """Points of two clouds, shared, and which cloud each is of."""
    random = np.random.default_rng(5)
    labels = random.integers(2, size=900)
    return c.array(random.standard_normal((900, 6)) + 2 * labels[:, None], name="points"), c.array(labels)


def where(estimator, x, labels):
    """A score that says where it was computed. It takes its time, or a node that is slow to begin comes too late for
    all of them."""
    time.sleep(0.02)
    return float(comem.rank)


def test_a_forest_grows_on_the_nodes_and_is_the_one_of_a_process(data):
    from sklearn.ensemble import RandomForestClassifier

    x, labels = data
    alone = RandomForestClassifier(24, random_state=1, n_jobs=1).fit(np.array(x), np.array(labels))
    with joblib.parallel_backend("comem"):
        forest = RandomForestClassifier(24, random_state=1, n_jobs=-1).fit(x, labels)
        predicted = forest.predict(x)
    assert forest.score(x, labels) > 0.9
    assert np.array_equal(predicted, alone.predict(np.array(x)))


def test_cross_validation_runs_on_all_nodes_and_the_points_go_by_reference(c, data):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    x, labels = data
    with joblib.parallel_backend("comem"):
        shared = cross_val_score(LogisticRegression(), x, labels, cv=12, n_jobs=-1)
        nodes = cross_val_score(LogisticRegression(), x, labels, cv=60, n_jobs=-1, scoring=where)
    assert np.array_equal(shared, cross_val_score(LogisticRegression(), np.array(x), np.array(labels), cv=12, n_jobs=1))
    assert set(nodes) == {float(node) for node in range(NODES)}
    points = next(one for one in arrays_of(c.stats()) if one["label"] == "points")
    assert min(points["pages_fetched"][1:]) > 0, "the workers got copies instead of references"


def test_a_search_over_parameters_gives_what_it_gives_in_one_process(data):
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    x, labels = data
    grid = {"C": [0.1, 1.0], "gamma": [0.01, 0.1]}
    with joblib.parallel_backend("comem"):
        search = GridSearchCV(SVC(), grid, cv=3, n_jobs=-1).fit(x, labels)
    alone = GridSearchCV(SVC(), grid, cv=3, n_jobs=1).fit(np.array(x), np.array(labels))
    assert search.best_params_ == alone.best_params_ and search.best_score_ == alone.best_score_
