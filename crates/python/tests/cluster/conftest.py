"""The tests send lambdas, which needs cloudpickle."""

import pytest



def pytest_collection_modifyitems(items):
    from comem import _wire

    if _wire._cloudpickle() is None:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="SKIP: Python clusters: cloudpickle is not installed"))
