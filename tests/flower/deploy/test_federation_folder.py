"""A federation's folder and its files; bad input of the commands."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from flower.federations import experiment, federation_in
from typer.testing import CliRunner

from headstart._cli.main import app
from headstart.errors import ConfigError, HeadstartError
from headstart.flower._federation_config import FederationConfig, SiteConfig
from headstart.flower.deploy._federation_folder import write_app
from headstart.flower.server._session import Session


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": ()}, "sites is empty"),
        ({"sites": ("a", "a")}, "named twice"),
        ({"sites": ("a", "b"), "late": ("a",)}, "named twice"),
        ({"sites": ("../up", "b")}, "site name '../up'"),
        ({"sites": ("a", "b"), "address": "here"}, "not HOST:PORT"),
        ({"sites": ("a", "b"), "address": "here:99999"}, "not HOST:PORT"),
        ({"sites": ("a", "b"), "min_sites": 3}, "min_sites=3 is more than the 2"),
        ({"sites": ("a", "b"), "deadline": 0.0}, "deadline=0.0"),
        ({"sites": ("a", "b"), "insecure": True, "address": "fl.org:1"}, "insecure"),
    ],
)
def test_a_federation_that_cannot_work_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FederationConfig(**options)  # type: ignore[arg-type]


def test_the_folder_of_a_federation(tmp_path: Path) -> None:
    federation_in(tmp_path / "f", experiment())
    folder = tmp_path / "f"
    session = Session.from_folder(folder, "run")
    assert session.roster.names == ("site-0", "site-1", "site-2", "site-3")
    assert session.roster.known_clients == 3
    for secret in [folder / "server/ca.key", folder / "sites/site-1/site.key"]:
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    certificate = x509.load_pem_x509_certificate((folder / "server/server.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((folder / "server/ca.crt").read_bytes())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]
    site = SiteConfig.read(folder / "sites/site-2/site.toml")
    assert (site.name, site.data) == ("site-2", str(folder / "sites/site-2/data"))
    tomllib.loads((folder / "app/pyproject.toml").read_text())
    for module in ("server_app", "client_app"):
        compile((folder / f"app/headstart_app/{module}.py").read_text(), module, "exec")
    public = folder / "server/sites/site-2.pub"
    assert public.read_text() == (folder / "sites/site-2/site.key.pub").read_text()


def test_the_app_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    """``serve`` writes it again: the app of a folder made by version 0.1 names other modules."""
    federation_in(tmp_path / "f", experiment())
    app = tmp_path / "f/app"
    files = {path: path.read_text() for path in app.rglob("*.*") if path.is_file()}
    for path in files:
        path.write_text("outdated")
    write_app(tmp_path / "f")
    assert {path: path.read_text() for path in files} == files
    table = tomllib.loads((app / "pyproject.toml").read_text())
    assert set(table["tool"]["flwr"]["app"]["config"]) == {
        "federation", "out", "resume", "distribute", "wait-for-all",
    }  # fmt: skip


def test_sites_with_data_of_their_own(tmp_path: Path) -> None:
    like = tmp_path / "like.csv"
    like.write_text("age,weight,label\n40,70.5,ill\n50,80.0,well\n")
    words = ["federate", "init", str(tmp_path / "f"), "--sites", "a,b", "--late", "c"]
    done = CliRunner().invoke(app, [*words, "--like", str(like)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "headstart federate serve" in done.output
    session = Session.from_folder(tmp_path / "f", "run")
    assert session.schema.feature_names == ("age", "weight")
    assert session.schema.class_names == ("ill", "well")
    assert session.experiment.data["path"] == str(tmp_path / "f/sites")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init", "{}", "--sites", "a,b"], "not empty"),
        (["init", "{}/new", "--late", "c"], "need --sites"),
        (["init", "{}/new", "--sites", "a,b", "--schema", "{}/something"], "is not a schema"),
        (["init", "{}/new", "--sites", "a,b", "--min-sites", "3"], "min_sites=3 is more"),
        (["init", "{}/new", "--sites", "a,b", "--like", "{}/no.csv"], "no.csv"),
        (["init", "{}/new", "--sites", "a,b", "--address", "x"], "HOST:PORT"),
        (["serve", "{}"], "federation.toml does not exist"),
        (["serve", "{}", "--resume"], "need --out"),
        (["serve", "{}", "--distribute"], "need --out"),
        (["serve", "{}", "--hand-out"], "need --out"),
        (["join", "{}/site.toml"], "site.toml does not exist"),
        (["personalize", "{}/site.toml"], "site.toml does not exist"),
        (["up", "--resume"], "needs --out"),
        (["up", "--resume", "--out", "{}/run"], "nothing to resume"),
        (["up", "{}/none.toml"], "none.toml does not exist"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    told = [word.replace("{}", str(tmp_path)) for word in words]
    with pytest.raises(HeadstartError, match=message) as caught:
        CliRunner().invoke(app, ["federate", *told], catch_exceptions=False)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["something"]
