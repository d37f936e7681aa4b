"""run -> check -> verify -> attest -> show on tiny models: the whole path, and what must be caught on it."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

PROMPT = "the an in the"
RESULT_SCHEMA = json.loads((resources.files("repro_audit.schemas") / "result.schema.json").read_text())


def result(out: str) -> dict:
    """A result printed with -f json, conforming to its schema."""
    tree = json.loads(out)
    jsonschema.Draft202012Validator(RESULT_SCHEMA).validate(tree)
    return tree


def codes(tree: dict) -> list[str]:
    return [finding["code"] for finding in tree["findings"]]


@pytest.fixture(scope="module")
def recorded(model, key, tmp_path_factory) -> Path:
    """A signed record at level ops: NAME.manifest.json."""
    from repro_audit.cli.main import run_and_exit

    stem = tmp_path_factory.mktemp("record") / "honest"
    arguments = ["run", model, "--prompt", PROMPT, "--key", key, "--max-new-tokens", "5", "--record", "ops"]
    assert run_and_exit([*map(str, arguments), "-o", str(stem), "-q"]) == 0
    return stem.with_name("honest.manifest.json")


@pytest.fixture
def pub(key) -> Path:
    return key.with_name(key.name + ".pub")


def test_honest_record_reproduces(cli, recorded, model, pub):
    ran = cli("verify", recorded, "--model", model, "--trusted-key", pub, "-f", "json")
    assert ran.code == 0, ran.err
    tree = result(ran.out)
    assert (tree["verdict"], tree["findings"], tree["matrix"]) == ("REPRODUCED", [], [])
    assert tree["counts"]["origins"] == 0
    assert tree["counts"]["rows identical"] > 100
    facts = {fact["name"]: fact["value"] for fact in tree["facts"]}
    assert facts["recorded on"].endswith("claimed")
    assert facts["rerun on"].endswith("measured")
    assert facts["grade"] == "same device model"


@pytest.mark.parametrize("schedule", [("--batch-size", "1"), ("--prefill-chunk", "3"), ("--threads", "1")])
def test_schedule_of_the_rerun_changes_nothing(cli, recorded, model, pub, schedule):
    assert cli("verify", recorded, "--model", model, "--trusted-key", pub, *schedule).code == 0


def test_check_show_and_attest(cli, recorded, model, pub, tmp_path):
    assert cli("check", recorded, "--trusted-key", pub).code == 0
    bob = tmp_path / "bob.pem"
    assert cli("keygen", bob).code == 0
    out = tmp_path / "bob.attestation.json"
    ran = cli("verify", recorded, "--model", model, "--trusted-key", pub, "--key", bob, "--attest", out)
    assert ran.code == 0, ran.err
    shown = cli("show", recorded, out, "--trusted-key", pub, "--trusted-key", f"{bob}.pub")
    assert shown.code == 0, shown.err
    assert "REPRODUCED" in shown.out
    ran = cli("verify", recorded, "--model", model, "--trusted-key", pub, "--key", bob, "--attest", out)
    ran.refused(2, "exists")


def test_reports_are_written_whole_and_never_over_others(cli, recorded, pub, tmp_path):
    path = tmp_path / "r.json"
    ran = cli("check", recorded, "--trusted-key", pub, "--report", f"json={path}", "-o", tmp_path / "r.txt")
    assert ran.code == 0
    assert ran.out == ""
    assert result(path.read_text())["verdict"] == "VALID"
    assert (tmp_path / "r.txt").read_text().startswith("VALID")
    cli("check", recorded, "--trusted-key", pub, "-o", path).refused(2, "r.json exists")
    assert cli("check", recorded, "--trusted-key", pub, "-f", "json", "-o", path, "--force").code == 0


def test_altered_weight_of_the_verifier_is_named(cli, recorded, model, pub, tmp_path):
    from repro_audit.models.tamper import tampered_copy

    damage = tampered_copy(str(model), tmp_path / "copy", tensor="model.layers.1.mlp.up_proj.weight")
    ran = cli("verify", recorded, "--model", damage.path, "--trusted-key", pub, "-f", "json")
    assert ran.code == 3, ran.err
    tree = result(ran.out)
    assert tree["verdict"] == "DIVERGED"
    weights = [finding["message"] for finding in tree["findings"] if finding["code"] == "RA301"]
    assert len(weights) == 1
    assert "model.layers.1.mlp.up_proj.weight" in weights[0]
    shown = next(finding for finding in tree["findings"] if finding["code"] == "RA402")
    assert shown["point"] == "model.layers.1.mlp.up_proj"
    assert set(codes(tree)) == {"RA301", "RA402"}
    assert (
        cli("verify", recorded, "--model", damage.path, "--trusted-key", pub, "--exit-codes", "bisect").code
        == 1
    )


def test_prover_who_ran_altered_weights_is_caught_at_the_point(cli, model, key, pub, tmp_path):
    """The record claims the genuine digests; one bit of one weight was flipped in memory."""
    import torch

    from repro_audit import models
    from repro_audit.cli.recording import Plan, Sampling, record_loaded
    from repro_audit.manifest.keys import load_private
    from repro_audit.progress import NullObserver
    from repro_audit.settings import Decoding, RunSettings

    loaded = models.load(str(model))
    weight = loaded.module.get_parameter("model.layers.1.self_attn.o_proj.weight")
    with torch.no_grad():
        weight.view(torch.int16).reshape(-1)[77] ^= 1 << 9
    plan = Plan(
        str(model), (PROMPT,), Sampling(5), RunSettings(Decoding(5), level="ops"), tmp_path / "cheat",
        key=load_private(str(key)),
    )  # fmt: skip
    record_loaded(plan, loaded, NullObserver())
    manifest = tmp_path / "cheat.manifest.json"
    ran = cli("verify", manifest, "--model", model, "--trusted-key", pub, "-f", "json")
    tree = result(ran.out)
    assert (ran.code, set(codes(tree)) - {"RA403"}) == (3, {"RA401"}), tree["findings"]
    origins = [finding for finding in tree["findings"] if finding["code"] == "RA401"]
    assert [finding["point"] for finding in origins] == ["model.layers.1.self_attn"]
    assert tree["counts"]["inherited"] > 0
    rows = dict(row.rsplit(" ", 1) for row in tree["matrix"][0]["rows"])
    assert set(rows["layer 0"]) == {"."}
    assert "O" in rows["layer 1"]
    manifest.with_name("cheat.trace.safetensors").unlink()
    tree = result(cli("verify", manifest, "--model", model, "--trusted-key", pub, "-f", "json").out)
    assert tree["verdict"] == "DIVERGED"
    points = [finding["point"] for finding in tree["findings"] if finding["code"] == "RA406"]
    assert points == ["model.layers.1.self_attn"]
    assert "RA203" in codes(tree)
    assert tree["matrix"] == [] or tree["matrix"][0]["rows"] == []


@pytest.mark.parametrize("level", ["layers", "ops"])
def test_one_ulp_at_one_element_is_one_origin(cli, key, pub, tmp_path, level):
    """One element of the MLP of layer 1, at the third token, is one unit in the last place off."""
    import ctypes

    import torch

    from repro_audit import models
    from repro_audit.cli.recording import Plan, Sampling, record_loaded
    from repro_audit.manifest.keys import load_private
    from repro_audit.progress import NullObserver
    from repro_audit.settings import Decoding, RunSettings
    from tests.helpers.tiny_models import tiny_folder

    def off_by_one_ulp(_module: object, _inputs: object, output: torch.Tensor) -> None:
        rows = output.reshape(-1, output.shape[-1])
        if rows.shape[0] > 2 and output.device.type == "cpu":
            address = rows.data_ptr() + (2 * rows.stride(0) + 5) * 4
            ctypes.cast(address, ctypes.POINTER(ctypes.c_uint32))[0] += 1

    model = tiny_folder(tmp_path / "four", num_hidden_layers=4)
    loaded = models.load(str(model))
    loaded.module.get_submodule("model.layers.1.mlp").register_forward_hook(off_by_one_ulp)
    plan = Plan(
        str(model), (PROMPT,), Sampling(4), RunSettings(Decoding(4), level=level), tmp_path / "ulp",
        key=load_private(str(key)),
    )  # fmt: skip
    record_loaded(plan, loaded, NullObserver())
    ran = cli("verify", tmp_path / "ulp.manifest.json", "--model", model, "--trusted-key", pub, "-f", "json")
    tree = result(ran.out)
    origins = [finding for finding in tree["findings"] if finding["code"] == "RA401"]
    assert ran.code == 3
    assert [(finding["point"], finding["position"]) for finding in origins] == [("model.layers.1.mlp", 2)]
    assert tree["counts"]["origins"] == 1
    rows = dict(row.rsplit(" ", 1) for row in tree["matrix"][0]["rows"])
    assert set(rows["layer 0"]) == {"."}
    assert rows["layer 1"][2] == "O"
    assert rows["layer 3"].startswith("..x")
    assert tree["counts"]["inherited"] > 10


def test_another_model_is_inconclusive(cli, recorded, pub, tmp_path):
    from tests.helpers.tiny_models import tiny_folder

    other = tiny_folder(tmp_path / "other", "qwen2")
    ran = cli("verify", recorded, "--model", other, "--trusted-key", pub)
    ran.refused(5, "not the model described")


def test_no_model_named(cli, recorded, pub):
    cli("verify", recorded, "--trusted-key", pub).refused(2, "--model")


def test_challenge(cli, recorded, model, key, pub, tmp_path):  # noqa: PLR0917
    nonce = "00112233445566778899aabbccddeeff"
    ran = cli("verify", recorded, "--model", model, "--trusted-key", pub, "--challenge", nonce, "-f", "json")
    assert ran.code == 6
    assert codes(result(ran.out)) == ["RA104"]
    run = ("run", model, "--prompt", "an", "--key", key, "--max-new-tokens", "1", "-o", tmp_path / "c")
    assert cli(*run, "--challenge", nonce).code == 0
    verify = ("verify", tmp_path / "c.manifest.json", "--model", model, "--trusted-key", pub)
    assert cli(*verify, "--challenge", nonce.upper()).code == 0


def test_private_inputs(cli, model, key, pub, tmp_path):
    run = (
        "run",
        model,
        "--prompt",
        "the secret",
        "--key",
        key,
        "--max-new-tokens",
        "2",
        "-o",
        tmp_path / "p",
    )
    assert cli(*run, "--private-inputs", "--chat").code == 0
    inputs = tmp_path / "p.inputs.json"
    assert inputs.stat().st_mode & 0o777 == 0o600
    manifest = tmp_path / "p.manifest.json"
    import base64

    payload = base64.b64decode(json.loads(manifest.read_text())["payload"])
    assert b"secret" not in payload
    verify = ("verify", manifest, "--model", model, "--trusted-key", pub)
    cli(*verify).refused(2, "--inputs")
    assert cli(*verify, "--inputs", inputs).code == 0
    other = tmp_path / "other.json"
    other.write_text(inputs.read_text().replace('"salt":"', '"salt":"00')[: -0 or None])
    assert cli(*verify, "--inputs", other).code == 4


def test_sampling_prompts_repeat_and_bf16(cli, model, key, pub, tmp_path):
    (tmp_path / "prompts.txt").write_text("the an\nin\nan the in the\n")
    ran = cli(
        "run", model, "--prompts", tmp_path / "prompts.txt", "--key", key, "--max-new-tokens", "6",
        "--temperature", "0.9", "--top-k", "20", "--top-p", "0.95", "--seed", "18446744073709551615",
        "--activations", "bf16", "--repeat", "2", "-o", tmp_path / "s", "-f", "json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    verify = ("verify", tmp_path / "s.manifest.json", "--model", model, "--trusted-key", pub)
    assert cli(*verify).code == 0


def test_scoring_a_prompt(cli, model, key, pub, tmp_path):
    run = ("run", model, "--prompt", PROMPT, "--key", key, "--max-new-tokens", "0", "-o", tmp_path / "z")
    assert cli(*run, "--record", "logits").code == 0
    assert cli("verify", tmp_path / "z.manifest.json", "--model", model, "--trusted-key", pub).code == 0


def test_python_model(cli, key, pub, tmp_path):
    spec = "python:tests.helpers.tiny_models:make_mlp_with_inputs"
    assert cli("run", spec, "--key", key, "-o", tmp_path / "m", "--record", "ops").code == 0
    ran = cli("verify", tmp_path / "m.manifest.json", "--model", spec, "--trusted-key", pub)
    assert ran.code == 0, ran.err
    cli("run", spec, "--key", key, "--prompt", "x", "-o", tmp_path / "n").refused(2, "own inputs")


def test_gguf(cli, key, pub, tmp_path):
    pytest.importorskip("gguf")
    from tests.helpers.tiny_models import tiny_gguf

    path = tiny_gguf(tmp_path / "tiny.gguf")
    run = ("run", path, "--prompt", PROMPT, "--key", key, "--max-new-tokens", "2", "-o", tmp_path / "g")
    assert cli(*run).code == 0
    ran = cli("verify", tmp_path / "g.manifest.json", "--model", path, "--trusted-key", pub)
    assert ran.code == 0, ran.err


def test_unsigned_then_signed(cli, model, key, pub, tmp_path):
    manifest = tmp_path / "u.manifest.json"
    run = ("run", model, "--prompt", "an", "--unsigned", "--max-new-tokens", "1", "-o", tmp_path / "u")
    assert cli(*run).code == 0
    cli(*run).refused(2, "exists")
    verify = ("verify", manifest, "--model", model, "--trusted-key", pub)
    cli(*verify).refused(4, "not signed")
    ran = cli(*verify, "--insecure-allow-untrusted", "-f", "json")
    assert ran.code == 0
    assert codes(result(ran.out)) == ["RA103"]
    assert "none" in {fact["name"]: fact["value"] for fact in result(ran.out)["facts"]}["trust"]
    assert cli("sign", manifest, "--key", key).code == 0
    assert cli(*verify).code == 0
    cli("sign", manifest, "--key", key).refused(2, "signed already")


def test_diff_of_two_schedules_is_identical(cli, recorded, model, key, pub, tmp_path):  # noqa: PLR0917
    run = ("run", model, "--prompt", PROMPT, "--key", key, "--max-new-tokens", "5", "--record", "ops")
    assert cli(*run, "-o", tmp_path / "b", "--prefill-chunk", "2").code == 0
    ran = cli("diff", recorded, tmp_path / "b.manifest.json", "--trusted-key", pub)
    assert ran.code == 0, ran.out
    assert "IDENTICAL" in ran.out


def test_generation_config_that_samples_is_recorded_as_resolved(cli, key, pub, tmp_path):
    from tests.helpers.tiny_models import tiny_folder

    folder = tiny_folder(tmp_path / "m", generation={"do_sample": True, "temperature": 0.7, "top_k": 11})
    ran = cli("run", folder, "--prompt", "an", "--key", key, "--max-new-tokens", "3", "-o", tmp_path / "g")
    assert ran.code == 0, ran.err
    assert "temperature 0.7, top-k 11" in ran.out
    assert "generation_config" in ran.out
    assert cli("verify", tmp_path / "g.manifest.json", "--model", folder, "--trusted-key", pub).code == 0
    folder = tiny_folder(tmp_path / "n", generation={"repetition_penalty": 1.3})
    run = ("run", folder, "--prompt", "an", "--key", key, "--max-new-tokens", "3", "-o", tmp_path / "h")
    cli(*run).refused(5, "repetition_penalty", "--temperature")
    assert cli(*run, "--temperature", "0").code == 0


def test_a_moved_record_without_its_trace_says_so(cli, recorded, model, pub, tmp_path):
    alone = shutil.copy(recorded, tmp_path / "alone.manifest.json")
    tree = result(cli("verify", alone, "--model", model, "--trusted-key", pub, "-f", "json").out)
    assert tree["verdict"] == "REPRODUCED"
    assert codes(tree) == ["RA203"]
    assert "points identical" in tree["counts"]
