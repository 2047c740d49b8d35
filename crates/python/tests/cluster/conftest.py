"""The cluster that tests share, if they ask for it; and they send lambdas, which needs cloudpickle."""

import os

import pytest
from clusters import NODES

# Arrays have a protocol, as between hosts, unless a test asks for what users get on one host (test_one_host.py).
os.environ.setdefault("COMEM_ENGINE", "hlrc")


@pytest.fixture(scope="module")
def c():
    import comem

    with comem.Cluster(NODES) as cluster:
        yield cluster


def pytest_collection_modifyitems(items):
    from comem import _wire

    if _wire._cloudpickle() is None:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="SKIP: Python clusters: cloudpickle is not installed"))
