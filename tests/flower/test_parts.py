"""The parts between Flower and the contract: parcels, settings, the worker's line, folders."""

from __future__ import annotations

import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from flower.federations import experiment, federation_in
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from typer.testing import CliRunner

from headstart.cli.main import app
from headstart.errors import ConfigError, DataError, HeadstartError
from headstart.flower.federation_config import FederationConfig, SiteConfig
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Parcel
from headstart.flower.protocol.error_codes import SiteError, code_of
from headstart.flower.server.server_app import read_session
from headstart.flower.site.worker_socket import ask_worker, listening

NUMBERS = arrays(np.float32, array_shapes(min_dims=0, max_dims=3, max_side=4))


@given(st.dictionaries(st.text(min_size=1, max_size=5), NUMBERS, max_size=3))
def test_a_parcel_survives_both_ways(tensors: dict[str, np.ndarray]) -> None:
    sent = wire.parcel({"round": 3, "name": "é"}, tensors)
    stream = wire.to_stream(sent)
    place = [0]

    def read(count: int) -> bytes:
        place[0] += count
        return stream[place[0] - count : place[0]]

    for back in (wire.from_records(wire.to_records(sent)), wire.from_stream(read)):
        assert back.text == sent.text
        for name, array in wire.tensors(back).items():
            assert array.dtype == tensors[name].dtype
            np.testing.assert_array_equal(array, tensors[name])


def test_nothing_pickled_is_read() -> None:
    evil = np.array([print], dtype=object)
    with pytest.raises(ValueError, match=r"[Oo]bject arrays"):
        wire.to_bytes(evil)
    with pytest.raises(DataError, match="cannot be read"):
        wire.from_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False}")


def test_the_process_of_a_message_does_without_jax() -> None:
    code = (
        "import sys, headstart.flower.site.client_app as c; "
        "sys.exit(any(m in sys.modules for m in ('jax', 'scipy', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_worker_answers_over_its_line(tmp_path: Path) -> None:
    order = wire.parcel({"hello": True}, {"a": np.arange(3.0)})
    assert ask_worker(tmp_path, order) is None
    with listening(tmp_path, lambda got: Parcel({"name": "me"}, got.arrays)):
        line = Path((tmp_path / "worker.socket").read_text())
        assert stat.S_IMODE(line.parent.stat().st_mode) == 0o700
        for _ in range(2):
            answer = ask_worker(tmp_path, order)
            assert answer is not None and answer.text == {"name": "me"}
            np.testing.assert_array_equal(wire.tensors(answer)["a"], np.arange(3.0))
    assert ask_worker(tmp_path, order) is None
    assert not line.parent.exists()


def test_a_workers_failure_keeps_its_class(tmp_path: Path) -> None:
    with (
        listening(tmp_path, lambda got: Parcel({"failed": "DataError"}, {})),
        pytest.raises(SiteError) as caught,
    ):
        ask_worker(tmp_path, wire.parcel({}, {}))
    assert code_of(caught.value.kind) == 102


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
    session = read_session(folder, "run")
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


def test_sites_with_data_of_their_own(tmp_path: Path) -> None:
    like = tmp_path / "like.csv"
    like.write_text("age,weight,label\n40,70.5,ill\n50,80.0,well\n")
    words = ["federate", "init", str(tmp_path / "f"), "--sites", "a,b", "--late", "c"]
    done = CliRunner().invoke(app, [*words, "--like", str(like)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "headstart federate serve" in done.output
    session = read_session(tmp_path / "f", "run")
    assert session.schema.feature_names == ("age", "weight")
    assert session.schema.class_names == ("ill", "well")
    assert session.experiment.data["path"] == str(tmp_path / "f/sites")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init", "{}", "--sites", "a,b"], "not empty"),
        (["init", "{}/new", "--late", "c"], "need --sites"),
        (["init", "{}/new", "--sites", "a,b", "--schema", "{}/something"], "is no schema"),
        (["init", "{}/new", "--sites", "a,b", "--min-sites", "3"], "min_sites=3 is more"),
        (["init", "{}/new", "--sites", "a,b", "--like", "{}/no.csv"], "no.csv"),
        (["init", "{}/new", "--sites", "a,b", "--address", "x"], "HOST:PORT"),
        (["serve", "{}"], "federation.toml does not exist"),
        (["serve", "{}", "--resume"], "need --out"),
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
