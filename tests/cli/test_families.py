"""run -> verify for every family that the tests can build, at the finest level: no false alarm, no crash."""

from __future__ import annotations

import json

import pytest

from tests.helpers.tiny_models import FAMILIES, tiny_folder


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_family_reproduces(cli, key, tmp_path, family):
    folder = tiny_folder(tmp_path / family, family)
    arguments = ["--prompt", "the man in the house", "--max-new-tokens", "3", "--record", "ops"]
    ran = cli("run", folder, *arguments, "--key", key, "-o", tmp_path / "record", "-q")
    assert ran.code == 0, ran.err
    public = key.with_name(key.name + ".pub")
    ran = cli(
        "verify", tmp_path / "record.manifest.json", "--model", folder, "--trusted-key", public, "-f", "json"
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["findings"] == []
