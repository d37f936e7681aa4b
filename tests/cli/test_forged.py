"""Records that a trusted runner signed and that say something else than what was computed: one lie each.

The trace is left away, so that what the manifest itself says decides.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.dsse import seal
from repro_audit.manifest.keys import load_private
from repro_audit.trace.digest import run_root, sequence_root

Json = dict[str, Any]


def payload_of(manifest: Path) -> Json:
    """The statement inside an envelope."""
    return json.loads(base64.b64decode(json.loads(manifest.read_text())["payload"]))


@pytest.fixture(scope="module")
def honest(model, key, tmp_path_factory) -> Path:
    """A greedy answer at level layers, signed."""
    from repro_audit.cli.main import run_and_exit

    stem = tmp_path_factory.mktemp("honest") / "honest"
    arguments = ["run", model, "--prompt", "the an in", "--key", key, "--max-new-tokens", "4", "-o", stem]
    assert run_and_exit([*map(str, arguments), "--temperature", "0", "-q"]) == 0
    return stem.with_name("honest.manifest.json")


@pytest.fixture
def verify_forged(cli, honest, model, key, tmp_path):
    """Edit the predicate, sign again, verify: exit code and the codes of the findings."""

    def run(edit: Callable[[Json], object], *options: str) -> tuple[int, list[str]]:
        statement = payload_of(honest)
        edit(statement["predicate"])
        forged = tmp_path / "forged.manifest.json"
        forged.write_bytes(seal(dumps(statement), load_private(str(key))))
        ran = cli("verify", forged, "--model", model, "--trusted-key", f"{key}.pub", "-f", "json", *options)
        tree = json.loads(ran.out)
        return ran.code, [f["code"] for f in tree["findings"] if f["code"] != "RA203"]

    return run


def rooted(predicate: Json) -> None:
    """Make the roots those of the point digests again."""
    for sequence in predicate["sequences"]:
        sequence["root"] = sequence_root([bytes.fromhex(digest) for digest in sequence["digests"]]).hex()
    predicate["root"] = run_root([bytes.fromhex(s["root"]) for s in predicate["sequences"]]).hex()


def without_point(predicate: Json, name: str) -> None:
    """Take a point out of the table and of every sequence; whoever consumed it consumes what it consumed."""
    points = predicate["points"]
    gone = next(i for i, point in enumerate(points) if point["name"] == name)
    for point in points:
        edges = [
            e
            for edge in point["inputs"]
            for e in (points[gone]["inputs"] if edge["point"] == gone else [edge])
        ]
        point["inputs"] = [edge | {"point": edge["point"] - (edge["point"] > gone)} for edge in edges]
    del points[gone]
    for sequence in predicate["sequences"]:
        for part in ("digests", "firsts", "counts"):
            del sequence[part][gone]
    rooted(predicate)


def test_nothing_forged(verify_forged):
    assert verify_forged(lambda p: p) == (0, [])
    assert verify_forged(rooted) == (0, [])


def test_a_point_digest(verify_forged):
    def forge(predicate: Json) -> None:
        predicate["sequences"][0]["digests"][4] = "00" * 32
        rooted(predicate)

    assert verify_forged(forge) == (3, ["RA406"])


def test_a_point_left_out(verify_forged):
    # Not of a block, whose absence shows in the manifest itself: the final norm, or all but the logits.
    assert verify_forged(lambda p: without_point(p, "model.norm")) == (3, ["RA204"])

    def all_but_the_logits(predicate: Json) -> None:
        predicate["level"] = "logits"
        for point in [point["name"] for point in predicate["points"][:-1]]:
            without_point(predicate, point)
        predicate["level"] = "layers"

    code, codes = verify_forged(all_but_the_logits)
    assert code in (3, 4)
    assert codes


def test_the_last_token(verify_forged):
    # It is never fed, so every row is as it was: only the sampler can tell.
    def forge(predicate: Json) -> None:
        predicate["sequences"][0]["generated"][-1] ^= 1
        del predicate["sequences"][0]["text"]

    assert verify_forged(forge) == (3, ["RA403"])


def test_the_text(verify_forged):
    def forge(predicate: Json) -> None:
        predicate["sequences"][0]["text"] += "!"

    assert verify_forged(forge) == (3, ["RA404"])


def test_the_text_of_the_prompt(verify_forged):
    def edit(predicate: Json) -> None:
        predicate["sequences"][0]["promptText"] = "the man"

    assert verify_forged(edit) == (3, ["RA410"])


def test_the_text_of_a_prompt_in_a_chat_template(cli, model, key, tmp_path):
    stem = tmp_path / "chat"
    arguments = ["--prompt", "the man", "--chat", "--temperature", "0", "--max-new-tokens", "2", "--key", key]
    assert cli("run", model, *arguments, "-o", stem, "-q").code == 0
    path = tmp_path / "chat.manifest.json"
    verify = ("verify", path, "--model", model, "--trusted-key", f"{key}.pub", "-f", "json")
    assert cli(*verify).code == 0
    for edit in (
        lambda p: p["sequences"][0].update(promptText="the woman"),
        lambda p: p["chat"].update(rendered=[p["chat"]["rendered"][0].replace("the man", "a man")]),
    ):
        statement = payload_of(path)
        edit(statement["predicate"])
        (tmp_path / "forged.manifest.json").write_bytes(seal(dumps(statement), load_private(str(key))))
        ran = cli("verify", tmp_path / "forged.manifest.json", *verify[2:])
        codes = [f["code"] for f in json.loads(ran.out)["findings"] if f["code"] != "RA203"]
        assert (ran.code, codes) == (3, ["RA410"])


def test_a_stop_token_of_the_recorder_s_own(verify_forged):
    """The answer ends where its rules end it, but they are not the model's."""

    def forge(predicate: Json) -> None:
        predicate["decoding"]["stopTokenIds"].append(predicate["sequences"][0]["generated"][-1])
        predicate["decoding"]["maxNewTokens"] = 64

    assert verify_forged(forge) == (5, ["RA308"])


def test_a_kind_of_model_that_it_is_not(verify_forged):
    assert verify_forged(lambda p: p["model"].update(kind="gguf"))[0] == 5


def test_the_model_root_of_another_model(cli, honest, model, key, tmp_path):
    """The tensors are the recorded ones, the subject is not: said, and never attested to."""
    from repro_audit.manifest.omsroot import root_of_digests

    statement = payload_of(honest)
    for file in statement["subject"][1:]:
        file["digest"]["sha256"] = "ab" * 32
    root = root_of_digests(["ab" * 32] * len(statement["subject"][1:]))
    statement["subject"][0]["digest"]["sha256"] = root
    forged, out = tmp_path / "forged.manifest.json", tmp_path / "out.json"
    forged.write_bytes(seal(dumps(statement), load_private(str(key))))
    verify = ("verify", forged, "--model", model, "--trusted-key", f"{key}.pub", "-f", "json")
    ran = cli(*verify, "--key", key, "--attest", out)
    assert ran.code == 0
    assert "RA306" in [finding["code"] for finding in json.loads(ran.out)["findings"]]
    genuine = payload_of(honest)["subject"][0]["digest"]["sha256"]
    assert payload_of(out)["predicate"]["configuration"][0] == {
        "digest": {"sha256": genuine}, "name": "urn:repro-audit:model-root",
    }  # fmt: skip


def test_a_scalar_a_buffer_a_constant(verify_forged):
    def scalar(predicate: Json) -> None:
        predicate["model"]["scalars"].append({"argument": "other", "operator": "x", "value": (0.5).hex()})

    def buffer(predicate: Json) -> None:
        predicate["model"]["buffers"][0]["digest"] = "00" * 32

    def constant(predicate: Json) -> None:
        entry = {"digest": "00" * 32, "dtype": "float32", "name": "constant", "shape": [1]}
        predicate["model"]["constants"].append(entry)

    assert verify_forged(scalar) == (3, ["RA303"])
    assert verify_forged(buffer)[1][0] == "RA302"
    assert verify_forged(constant) == (3, ["RA304"])


def test_a_cache_that_the_recorder_saw_change(verify_forged):
    def forge(predicate: Json) -> None:
        predicate["coverage"]["cacheFaults"].append("model.layers.0.k_cache s0 1")

    assert verify_forged(forge) == (3, ["RA405"])


def test_another_challenge_than_asked_for(verify_forged):
    def forge(predicate: Json) -> None:
        predicate["challenge"] = "ab" * 16

    assert verify_forged(forge, "--challenge", "ab" * 16) == (0, [])
    assert verify_forged(forge, "--challenge", "cd" * 16) == (6, ["RA104"])


def test_wrong_kernels_on_this_machine_decide_nothing(verify_forged, monkeypatch):
    from repro_audit.verify import known_answers

    monkeypatch.setattr(known_answers, "failures", lambda *_: ["linear"])
    assert verify_forged(lambda p: p) == (5, ["RA501"])


def test_a_private_answer_cut_short(cli, model, key, tmp_path):
    """The manifest withholds the tokens: only a verifier who has them sees that nothing ended the answer."""
    import dataclasses

    from repro_audit.manifest.private import parse_inputs

    run = ("run", model, "--prompt", "the an in", "--key", key, "--max-new-tokens", "4", "--private-inputs")
    assert cli(*run, "-o", tmp_path / "p").code == 0
    verify = (
        "verify",
        tmp_path / "p.manifest.json",
        "--model",
        model,
        "--trusted-key",
        f"{key}.pub",
        "-f",
        "json",
    )
    verify = (*verify, "--inputs", tmp_path / "p.inputs.json")
    (tmp_path / "p.trace.safetensors").unlink()
    assert cli(*verify).code == 0
    statement = payload_of(tmp_path / "p.manifest.json")
    predicate = statement["predicate"]
    predicate["decoding"]["maxNewTokens"] = 5
    inputs = parse_inputs((tmp_path / "p.inputs.json").read_bytes())
    assert dataclasses.astuple(inputs.claim()) == (
        predicate["privacy"]["commitment"], predicate["privacy"]["saltDigest"],
    )  # fmt: skip
    (tmp_path / "p.manifest.json").write_bytes(seal(dumps(statement), load_private(str(key))))
    tree = json.loads(cli(*verify).out)
    assert [f["code"] for f in tree["findings"] if f["code"] != "RA203"] == ["RA407"]


def test_other_inputs_of_the_factory(cli, key, tmp_path, monkeypatch):
    """A python: model brings its own tokens; other ones than recorded decide nothing."""
    module = tmp_path / "factory_under_test.py"
    module.write_text(
        "import os, torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table = torch.nn.Embedding(8, 4)\n"
        "        torch.nn.init.ones_(self.table.weight)\n"
        "    def forward(self, input_ids):\n"
        "        return self.table(input_ids)\n"
        "def make():\n"
        "    tokens = [int(t) for t in os.environ['FACTORY_TOKENS'].split()]\n"
        "    return Model().eval(), {'input_ids': torch.tensor([tokens])}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTORY_TOKENS", "1 2 3")
    assert cli("run", "python:factory_under_test:make", "--key", key, "-o", tmp_path / "f").code == 0
    verify = ("verify", tmp_path / "f.manifest.json", "--model", "python:factory_under_test:make")
    verify = (*verify, "--trusted-key", f"{key}.pub")
    assert cli(*verify).code == 0
    monkeypatch.setenv("FACTORY_TOKENS", "1 2 4")  # whose row is the same
    cli(*verify).refused(5, "inputs")


def test_nobody_attests_to_an_untrusted_record(cli, honest, model, tmp_path):
    other, out = tmp_path / "other.pem", tmp_path / "out.json"
    assert cli("keygen", other).code == 0
    ran = cli(
        "verify", honest, "--model", model, "--trusted-key", f"{other}.pub", "--insecure-allow-untrusted",
        "--key", other, "--attest", out,
    )  # fmt: skip
    ran.refused(4, "attestation", "trusted key")
    assert not out.exists()


def test_a_weight_that_ran_without_its_digest_changing(cli, honest, model, key, monkeypatch):
    """As a verifier whose memory is at fault sees it: digests agree, rows do not."""
    from repro_audit.verify import identity

    original = identity.load

    def faulty(*arguments: Any) -> Any:
        loaded = original(*arguments)
        with torch.no_grad():
            loaded.module.get_parameter("model.layers.0.mlp.up_proj.weight").view(torch.int16).view(-1)[
                5
            ] ^= 1 << 8
        return loaded

    monkeypatch.setattr(identity, "load", faulty)
    ran = cli("verify", honest, "--model", model, "--trusted-key", f"{key}.pub", "-f", "json")
    tree = json.loads(ran.out)
    origins = [f["point"] for f in tree["findings"] if f["code"] == "RA401"]
    assert (ran.code, origins) == (3, ["model.layers.0.mlp"])


def test_another_build_of_the_kernels_is_told_and_decides_nothing(verify_forged, cli, honest, model, key):
    assert [kernel["name"] for kernel in payload_of(honest)["predicate"]["compiled"]] == ["cpu"]
    assert verify_forged(lambda p: None) == (0, [])
    assert verify_forged(lambda p: p["compiled"][0].update(sha256="00" * 32)) == (0, ["RA505"])
    assert verify_forged(lambda p: p.pop("compiled")) == (0, [])
    ran = cli("verify", honest, "--model", model, "--trusted-key", f"{key}.pub")
    assert "compiled kernels" in ran.out and "1 of 1 that ran on both sides are the same" in ran.out
