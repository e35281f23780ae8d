import pytest
from newcomer import Tree

collect_ignore = ["toys"]  # they are run in copies of the tree, at the places that they are for


@pytest.fixture
def tree(tmp_path):
    """A copy of the tree; nothing that is done there is seen here."""
    return Tree(tmp_path)
