"""Prompts, chat templates and generation defaults."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from repro_audit import models
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.generation import resolve
from repro_audit.models.loaded import GenerationDefaults
from tests.helpers.tiny_models import DATED_TEMPLATE, tiny_folder


def test_round_trip_and_chat(tmp_path):
    model = models.load(str(tiny_folder(tmp_path / "m")))
    prompt = model.encode("the cat, an owl  and\n12 more: ü")
    assert prompt.chat_template_text is None and prompt.date is None
    assert model.decode(prompt.token_ids) == prompt.text
    chat = model.encode("Hi", chat=True)
    assert chat.text == "Hi" and chat.date is None
    assert chat.chat_template_text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert chat.token_ids[0] == 1 and chat.token_ids.count(1) == 2
    assert model.decode(chat.token_ids) == chat.chat_template_text


def test_a_date_in_the_template_is_reported(tmp_path):
    model = models.load(str(tiny_folder(tmp_path / "m", chat_template=DATED_TEMPLATE)))
    before = datetime.now().strftime("%d %b %Y")
    prompt = model.encode("Hi", chat=True)
    assert prompt.date in {before, datetime.now().strftime("%d %b %Y")}
    assert prompt.chat_template_text is not None
    assert prompt.chat_template_text.startswith(f"Today is {prompt.date}.\n")


def test_refused(tmp_path):
    model = models.load(str(tiny_folder(tmp_path / "m", chat_template=None)))
    with pytest.raises(UsageError, match="the prompt is empty"):
        model.encode("")
    with pytest.raises(InconclusiveError, match="m has no chat template; leave out --chat"):
        model.encode("x", chat=True)
    broken = models.load(str(tiny_folder(tmp_path / "b", chat_template="{{ raise_exception('no user') }}")))
    with pytest.raises(InconclusiveError, match=r"the chat template of b failed \(no user\)"):
        broken.encode("x", chat=True)


def test_tokenizer_digest_follows_its_files_only(tmp_path):
    first = models.load(str(tiny_folder(tmp_path / "a")))
    second = models.load(str(tiny_folder(tmp_path / "b", seed=1)))
    third = models.load(str(tiny_folder(tmp_path / "c", chat_template=None)))
    assert first.tokenizer_digest == second.tokenizer_digest != third.tokenizer_digest
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "b" / name).unlink()
    without = models.load(str(tmp_path / "b"))
    assert without.tokenizer is None and without.tokenizer_digest == ""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, GenerationDefaults()),
        ({"eos_token_id": 7}, GenerationDefaults(eos_token_ids=(7,))),
        ({"eos_token_id": [9, 7, 9], "temperature": 0.6}, GenerationDefaults(eos_token_ids=(7, 9))),
        ({"do_sample": True}, GenerationDefaults(do_sample=True, temperature=1.0, top_k=50)),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0},
            GenerationDefaults(do_sample=True, temperature=0.6, top_p=0.9),
        ),
        ({"repetition_penalty": 1.0, "num_beams": 1, "max_length": 20}, GenerationDefaults()),
        (
            {"repetition_penalty": 1.1, "num_beams": 4},
            GenerationDefaults(unsupported=(("num_beams", "4"), ("repetition_penalty", "1.1"))),
        ),
        ({"min_p": 0.1}, GenerationDefaults()),
        (
            {"do_sample": True, "min_p": 0.1},
            GenerationDefaults(do_sample=True, temperature=1.0, top_k=50, unsupported=(("min_p", "0.1"),)),
        ),
        ({"forced_eos_token_id": 2}, GenerationDefaults(unsupported=(("forced_eos_token_id", "2"),))),
    ],
)
def test_generation_defaults(values, expected):
    assert resolve(values, {}) == expected


def test_generation_config_of_a_folder(tmp_path):
    folder = tiny_folder(tmp_path / "m", generation={"do_sample": True, "top_k": 5})
    assert models.load(str(folder)).generation == GenerationDefaults(True, 1.0, 5, 1.0, (2,))
    (folder / "generation_config.json").unlink()
    values = json.loads((folder / "config.json").read_text())
    assert models.load(str(folder)).generation.eos_token_ids == (values["eos_token_id"],)
