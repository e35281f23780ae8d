"""The package's metadata: where the project is published, which nobody writes into the tree."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -e '.[dev]'")

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
HOSTED = "https://host.example/group/saccade"


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A tree with what a build needs, in a repository without remotes."""
    monkeypatch.delenv("SACCADE_URL", raising=False)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    tree = tmp_path / "checkout"
    (tree / "src" / "saccade").mkdir(parents=True)
    (tree / "src" / "saccade" / "__init__.py").touch()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    git(tree, "init", "-q")
    return tree


def git(tree, *words):
    subprocess.run(["git", "-C", str(tree), *words], check=True, capture_output=True)


def build(tree, what, to):
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{what}", str(to)],
        cwd=tree, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return to / done.stdout.split()[-1]


def urls_of(wheel):
    """Label and address of each entry, in order."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        entries = Parser().parsestr(archive.read(name).decode()).get_all("Project-URL", [])
    return [tuple(entry.split(", ")) for entry in entries]


@pytest.mark.parametrize(
    "remote",
    [
        HOSTED,
        f"{HOSTED}.git",
        f"{HOSTED}/",
        "http://host.example/group/saccade.git",
        "https://token@host.example/group/saccade.git",
        "https://user:to:k%40n@host.example/group/saccade.git",
        "https://user:to#ken@host.example/group/saccade",
        "https://user:to@ken@HOST.example/group/saccade.git",
        "git@host.example:group/saccade.git",
        "host.example:/group/saccade",
        "ssh://git@host.example/group/saccade.git",
        "ssh://git:secret@host.example:2222/group/saccade",
        "git://host.example/group/saccade.git\n",
    ],
)
def test_remotes_are_turned_into_the_page_of_the_repository(hook, remote):
    assert hook.published(remote) == HOSTED


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://host.example:8443/a/b.git", "https://host.example:8443/a/b"),
        ("git@host.example:12/team/b.git", "https://host.example/12/team/b"),
        ("git@git.host.example:~user/b", "https://git.host.example/~user/b"),
        ("https://host.example/a/b.github.io.git", "https://host.example/a/b.github.io"),
    ],
)
def test_ports_groups_and_names_stay(hook, remote, page):
    assert hook.published(remote) == page


@pytest.mark.parametrize(
    "remote",
    [
        "", "origin", ".", "../saccade", "/srv/git/saccade.git", "file:///srv/git/saccade.git",
        "C:\\git\\saccade", "alias:group/saccade", "https://localhost/group/saccade",
        "http://10.0.0.7/group/saccade", "https://host.example", "https://host.example/saccade",
        "git@host.example:../../saccade", "https://user:to/ken@host.example/group/saccade",
        "https://host.example/group/saccade?token=1", "https://host.example/a/b\nEvil: c",
    ],
)  # fmt: skip
def test_folders_and_what_nobody_else_can_reach_are_no_address(hook, remote):
    assert hook.published(remote) is None


def test_a_wheel_names_where_its_checkout_comes_from(hook, checkout, tmp_path):
    git(checkout, "remote", "add", "origin", "https://user:token@host.example/group/saccade.git")
    named = urls_of(build(checkout, "wheel", tmp_path))
    assert named == [(label, HOSTED + page) for label, page in hook.PAGES.items()]


def test_without_an_address_a_wheel_names_none(checkout, tmp_path):
    assert urls_of(build(checkout, "wheel", tmp_path)) == []
    git(checkout, "remote", "add", "origin", str(checkout))
    assert urls_of(build(checkout, "wheel", tmp_path)) == []


def test_a_source_distribution_keeps_its_addresses(hook, checkout, tmp_path):
    git(checkout, "remote", "add", "origin", "git@host.example:group/saccade.git")
    with tarfile.open(build(checkout, "sdist", tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (tree,) = (tmp_path / "unpacked").iterdir()
    assert len(urls_of(build(tree, "wheel", tmp_path))) == len(hook.PAGES)


def test_the_environment_comes_first(hook, checkout, monkeypatch):
    git(checkout, "remote", "add", "origin", "https://host.example/fork/saccade")
    assert hook.address(checkout) == "https://host.example/fork/saccade"
    monkeypatch.setenv("SACCADE_URL", HOSTED)
    assert hook.address(checkout) == HOSTED
    monkeypatch.setenv("SACCADE_URL", "token@nowhere")
    with pytest.raises(ValueError, match="SACCADE_URL is not the address") as refused:
        hook.address(checkout)
    assert "token" not in str(refused.value)


def test_neither_git_nor_a_repository_around_it_is_asked(hook, checkout, monkeypatch):
    git(checkout, "remote", "add", "origin", HOSTED)
    assert hook.address(checkout / "src") is None
    monkeypatch.setenv("PATH", "")
    assert hook.address(checkout) is None
