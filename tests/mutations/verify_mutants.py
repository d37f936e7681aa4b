"""Mutants of what computes and compares: the verifier, the engine, and the loading of models."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Edit, Mutant

_ALL: Final = ("*",)


def _verify(name: str, old: str, new: str) -> Edit:
    return Edit(f"repro_audit/verify/{name}", old, new)


def _engine(name: str, old: str, new: str) -> Edit:
    return Edit(f"repro_audit/engine/{name}", old, new)


def _models(name: str, old: str, new: str) -> Edit:
    return Edit(f"repro_audit/models/{name}", old, new)


VERIFY_MUTANTS: Final = (
    # ---- what is compared
    Mutant(
        "rows-not-compared",
        (
            _verify(
                "compare.py",
                "np.any(own.digests != trace[theirs], axis=-1)",
                "np.any(own.digests != own.digests, axis=-1)",
            ),
        ),
        (
            "tests/cli/test_flow.py::test_prover_who_ran_altered_weights_is_caught_at_the_point",
            "tests/cli/test_forged.py::test_a_weight_that_ran_without_its_digest_changing",
        ),
        _ALL,
    ),
    Mutant(
        "points-not-compared-without-a-trace",
        (_verify("compare.py", "np.array([digest != claim.digests[theirs]])", "np.array([not digest])"),),
        ("tests/cli/test_forged.py::test_a_point_digest",),
        _ALL,
    ),
    Mutant(
        "weights-not-compared",
        (
            _verify(
                "identity.py",
                "        if here[name].digest != tensor.digest\n",
                "        if not here[name].digest\n",
            ),
        ),
        (
            "tests/unit/test_verify_identity.py::test_a_changed_tensor_is_named_with_its_ties",
            "tests/cli/test_flow.py::test_altered_weight_of_the_verifier_is_named",
        ),
        _ALL,
    ),
    Mutant(
        "weight-findings-dropped",
        (_verify("verify.py", "    findings += weights\n", ""),),
        ("tests/cli/test_flow.py::test_altered_weight_of_the_verifier_is_named",),
        _ALL,
    ),
    Mutant(
        "tokens-not-compared",
        (_verify("verify.py", "            if claimed != picked:\n", "            if claimed is None:\n"),),
        ("tests/cli/test_forged.py::test_the_last_token",),
        _ALL,
    ),
    Mutant(
        "token-findings-dropped",
        (
            _verify(
                "verify.py",
                "findings += _tokens(claim, rerun) + _texts(claim, model)",
                "findings += _texts(claim, model)",
            ),
        ),
        ("tests/cli/test_forged.py::test_the_last_token",),
        _ALL,
    ),
    Mutant(
        "ends-not-checked",
        (
            _verify(
                "verify.py",
                "if mine.prompt and (not whole or stops.intersection(recorded[:-1])):",
                "if not whole and not mine.prompt:",
            ),
        ),
        ("tests/cli/test_forged.py::test_a_private_answer_cut_short",),
        _ALL,
    ),
    Mutant(
        "text-not-compared",
        (
            _verify(
                "verify.py",
                "if text is not None and model.decode(tokens) != text",
                "if text is not None and model.decode(tokens) is None",
            ),
        ),
        ("tests/cli/test_forged.py::test_the_text",),
        _ALL,
    ),
    Mutant(
        "scalars-not-compared",
        (
            _verify(
                "identity.py",
                "    recorded, found = set(manifest.model.scalars), set(rerun.scalars)\n",
                "    recorded, found = set(rerun.scalars), set(rerun.scalars)\n",
            ),
        ),
        (
            "tests/unit/test_verify_identity.py::test_scalars_buffers_and_constants_are_compared",
            "tests/cli/test_forged.py::test_a_scalar_a_buffer_a_constant",
        ),
        _ALL,
    ),
    Mutant(
        "buffers-not-compared",
        (
            _verify(
                "identity.py",
                '("RA302", "buffer", manifest.model.buffers, rerun.buffers)',
                '("RA302", "buffer", rerun.buffers, rerun.buffers)',
            ),
        ),
        (
            "tests/unit/test_verify_identity.py::test_scalars_buffers_and_constants_are_compared",
            "tests/cli/test_forged.py::test_a_scalar_a_buffer_a_constant",
        ),
        _ALL,
    ),
    Mutant(
        "constants-not-compared",
        (
            _verify(
                "identity.py",
                '("RA304", "constant", manifest.model.constants, rerun.constants)',
                '("RA304", "constant", rerun.constants, rerun.constants)',
            ),
        ),
        (
            "tests/unit/test_verify_identity.py::test_scalars_buffers_and_constants_are_compared",
            "tests/cli/test_forged.py::test_a_scalar_a_buffer_a_constant",
        ),
        _ALL,
    ),
    Mutant(
        "derived-findings-dropped",
        (_verify("verify.py", "    findings += derived\n", ""),),
        ("tests/cli/test_forged.py::test_a_scalar_a_buffer_a_constant",),
        _ALL,
    ),
    Mutant(
        "cache-faults-ignored",
        (_verify("verify.py", " + _cache(manifest, rerun)", ""),),
        ("tests/cli/test_forged.py::test_a_cache_that_the_recorder_saw_change",),
        _ALL,
    ),
    Mutant(
        "points-taken-from-the-manifest",
        (
            _verify(
                "verify.py",
                "    structure, compared = _rows(claim, required, rerun)\n",
                "    listed = {spec.point.name for spec in manifest.points}\n    required = tuple(point "
                "for point in required if point.name in listed)\n    structure, compared = _rows(claim, "
                "required, rerun)\n",
            ),
        ),
        ("tests/cli/test_forged.py::test_a_point_left_out",),
        _ALL,
    ),
    Mutant(
        "missing-points-accepted",
        (_verify("compare.py", "        if point.name not in places\n", '        if point.name == ""\n'),),
        ("tests/unit/test_verify_judge.py::test_missing_and_extra_points_never_reproduce",),
    ),
    Mutant(
        "extra-points-accepted",
        (
            _verify(
                "compare.py",
                "if spec.point.name not in known or places[spec.point.name] != index",
                'if spec.point.name == ""',
            ),
        ),
        ("tests/unit/test_verify_judge.py::test_missing_and_extra_points_never_reproduce",),
    ),
    Mutant(
        "points-in-any-order",
        (
            _verify(
                "compare.py",
                "if not findings and list(matched.values()) != sorted(matched.values()):",
                "if not findings and not matched:",
            ),
        ),
        ("tests/unit/test_verify_judge.py::test_missing_and_extra_points_never_reproduce",),
    ),
    Mutant(
        "row-types-not-compared",
        (_verify("compare.py", "    if own.header != spec.header:\n", "    if own.header is None:\n"),),
        ("tests/unit/test_verify_compare.py::test_rows_of_another_kind",),
    ),
    Mutant(
        "row-spans-not-compared",
        (
            _verify(
                "compare.py",
                "    if (first, count) != (own.first, own.digests.shape[0]):\n",
                "    if count < 0:\n",
            ),
        ),
        ("tests/unit/test_verify_compare.py::test_rows_of_another_kind",),
    ),
    Mutant(
        "challenge-not-compared",
        (
            _verify(
                "verify.py",
                "if options.challenge is not None and manifest.challenge != options.challenge:",
                "if options.challenge is not None and manifest.challenge is None:",
            ),
        ),
        ("tests/cli/test_forged.py::test_another_challenge_than_asked_for",),
        _ALL,
    ),
    Mutant(
        "inputs-of-the-factory-not-compared",
        (
            _verify(
                "verify.py",
                "    if tuple(sequence.prompt for sequence in rerun.sequences) != claim.prompts:\n",
                "    if not rerun.sequences:\n",
            ),
        ),
        ("tests/cli/test_forged.py::test_other_inputs_of_the_factory",),
        _ALL,
    ),
    # ---- is it the model described, this machine, this key
    Mutant(
        "configuration-not-compared",
        (
            _verify(
                "identity.py",
                "    if model.config_digest != claim.config_digest:\n",
                "    if not model.config_digest:\n",
            ),
        ),
        ("tests/unit/test_verify_identity.py::test_not_the_model_described",),
    ),
    Mutant(
        "shapes-not-compared",
        (
            _verify(
                "identity.py",
                "        if (here.dtype, here.shape) != (tensor.dtype, tensor.shape):\n",
                "        if here.dtype is None:\n",
            ),
        ),
        ("tests/unit/test_verify_identity.py::test_not_the_model_described",),
    ),
    Mutant(
        "tied-names-not-compared",
        (
            _verify(
                "identity.py",
                "    if set(map(frozenset, model.tied)) != set(map(frozenset, claim.tied)):\n",
                "    if model.tied is None:\n",
            ),
        ),
        ("tests/unit/test_verify_identity.py::test_not_the_model_described",),
    ),
    Mutant(
        "a-manifest-names-the-model",
        (_verify("identity.py", "        and _COMMIT.fullmatch(claim.revision)\n", ""),),
        ("tests/unit/test_verify_identity.py::test_a_manifest_names_nothing_else",),
    ),
    Mutant(
        "a-manifest-starts-a-download",
        (_verify("identity.py", "revision=claim.revision), False\n", "revision=claim.revision), online\n"),),
        (
            "tests/unit/test_verify_identity.py::test_without_a_model_only_a_pinned_hub_revision_from_the"
            "_cache",
        ),
    ),
    Mutant(
        "known-answers-ignored",
        (
            _verify(
                "verify.py",
                "    failed = known_answers.failures(",
                "    failed = [] and known_answers.failures(",
            ),
        ),
        ("tests/cli/test_forged.py::test_wrong_kernels_on_this_machine_decide_nothing",),
        _ALL,
    ),
    Mutant(
        "unknown-profile-version-accepted",
        (
            _verify(
                "check.py",
                "if settings.profile not in PROFILES or manifest.profile_version != PROFILE_VERSION:",
                "if settings.profile not in PROFILES:",
            ),
        ),
        ("tests/unit/manifest/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "attestation-without-trust",
        (
            _verify(
                "outcome.py",
                "    if not verification.claim.opened.signers:\n",
                "    if not verification.claim.opened.payload:\n",
            ),
        ),
        ("tests/cli/test_forged.py::test_nobody_attests_to_an_untrusted_record",),
        _ALL,
    ),
    Mutant(
        "top2-not-checked",
        (_verify("check.py", "        _check_top2(manifest, index, top2)\n", "        pass\n"),),
        ("tests/unit/check/test_top2.py::test_logits_that_are_no_top_two",),
    ),
    Mutant(
        "greedy-tokens-not-checked",
        (
            _verify(
                "check.py",
                "            if int(top2[step, 0, 0]) != token:\n",
                "            if int(top2[step, 0, 0]) < 0:\n",
            ),
        ),
        ("tests/unit/check/test_top2.py::test_a_greedy_token_that_is_not_the_largest",),
    ),
    Mutant(
        "saved-values-not-checked",
        (
            _verify(
                "check.py",
                "            _check_values(manifest, trace, index, point, recorded)\n",
                "            pass\n",
            ),
        ),
        ("tests/unit/manifest/test_vectors.py::test_verdict",),
    ),
    # ---- verdicts and origins
    Mutant(
        "verdicts-in-another-order",
        (
            Edit(
                "repro_audit/verdict.py",
                "_PRECEDENCE = (Verdict.UNTRUSTED, Verdict.DIVERGED, Verdict.INCONCLUSIVE",
                "_PRECEDENCE = (Verdict.UNTRUSTED, Verdict.INCONCLUSIVE, Verdict.DIVERGED",
            ),
        ),
        ("tests/unit/test_verify_judge.py::test_precedence",),
    ),
    Mutant(
        "everything-is-an-origin",
        (_verify("origins.py", "        mine = own & ~tainted\n", "        mine = own\n"),),
        ("tests/unit/test_origins.py::test_one_origin_and_its_heirs",),
        quick=True,
    ),
    Mutant(
        "causal-edges-see-one-row",
        (
            _verify(
                "origins.py",
                "        low, high = np.full_like(positions, first), positions + 1\n",
                "        low, high = positions, positions + 1\n",
            ),
        ),
        ("tests/unit/test_origins.py::test_causal_taints_later_rows_only",),
        quick=True,
    ),
    Mutant(
        "window-edges-one-longer",
        (
            _verify(
                "origins.py",
                "low, high = positions - edge.window + 1, positions + 1",
                "low, high = positions - edge.window, positions + 1",
            ),
        ),
        ("tests/unit/test_origins.py::test_window_reaches_back_exactly_its_width",),
    ),
    # ---- the engine
    Mutant(
        "salt-not-used-by-the-engine",
        (
            Edit(
                "repro_audit/trace/recorder.py",
                "(header, row_key(header, self._salt))",
                "(header, row_key(header))",
            ),
        ),
        (
            "tests/unit/engine/test_recorder.py::test_rows_are_the_defined_digests",
            "tests/unit/engine/test_generate.py::test_a_salt_keys_every_row",
        ),
        _ALL,
    ),
    Mutant(
        "pending-rows-not-copied",
        (
            Edit(
                "repro_audit/trace/recorder.py",
                "dims, tensor.clone()))",
                "dims, tensor))",
            ),
        ),
        ("tests/unit/engine/test_recorder.py::test_a_small_tensor_may_change_before_the_flush",),
        _ALL,
    ),
    Mutant(
        "cache-not-hashed-again",
        (
            _engine(
                "generate.py", "            faults += _cache_faults(opened, recorder, cache, batch)\n", ""
            ),
        ),
        ("tests/unit/engine/test_generate.py::test_a_cache_that_changes_is_found",),
        _ALL,
    ),
    Mutant(
        "draws-by-place-in-the-batch",
        (
            _engine(
                "sequences.py", "                sequence_id=item.id,\n", "                sequence_id=row,\n"
            ),
        ),
        ("tests/unit/engine/test_generate.py::test_sampling_depends_on_id_and_seed_not_on_the_batch",),
        _ALL,
    ),
    Mutant(
        "draws-by-step",
        (
            _engine(
                "sequences.py",
                "        position = len(item.prompt) + len(item.drawn)\n",
                "        position = len(item.drawn)\n",
            ),
        ),
        ("tests/golden/test_golden.py::test_every_bit_is_reproduced",),
        _ALL,
    ),
    Mutant(
        "replays-not-counted",
        (_engine("decode_graph.py", "        self._opened.mode.repeat(*stage.counts, replayed)\n", ""),),
        ("tests/unit/engine/test_decode_steps.py::test_greedy",),
        _ALL,
    ),
    Mutant(
        "static-steps-draw-at-the-fed-position",
        (
            _engine(
                "static_step.py",
                "            positions=following,\n",
                "            positions=self._positions,\n",
            ),
        ),
        ("tests/unit/engine/test_decode_steps.py::test_sampled",),
        _ALL,
    ),
    Mutant(
        "an-unsound-step-counts",
        (_engine("decode_graph.py", "            if not outcome.sound:\n", "            if False:\n"),),
        ("tests/unit/engine/test_decode_steps.py::test_what_is_not_finite_is_named",),
        _ALL,
    ),
    Mutant(
        "a-step-past-a-stop-counts",
        (
            _engine(
                "decode_graph.py",
                "            live_on = _accept(outcome, rows, self._decoding)\n",
                "            _accept(outcome, rows, self._decoding)\n",
            ),
        ),
        (
            "tests/unit/engine/test_decode_steps.py::test_batches_whose_sequences_stop_one_by_one",
            "tests/unit/engine/test_decode_steps.py::test_steps_are_replayed_and_one_runs_ahead",
        ),
        _ALL,
    ),
    Mutant(
        "unknown-operators-pass",
        (
            _engine(
                "dispatch.py",
                '        raise self.refuse(\n            f"operator {func} is outside profile fp32",',
                '        return Row("exact", "", lambda mode, func, args, kwargs: func(*args, '
                '**kwargs))\n        raise self.refuse(\n            f"operator {func} is outside '
                'profile fp32",',
            ),
        ),
        ("tests/unit/engine/test_dispatch.py::test_refused",),
        _ALL,
    ),
    Mutant(
        "scalars-not-recorded",
        (
            _engine(
                "dispatch.py",
                "                    self.findings.scalars.add((str(func), name, value.hex()))\n        "
                "if kwargs:",
                "                    pass\n        if kwargs:",
            ),
        ),
        ("tests/unit/engine/test_dispatch.py::test_scalars_and_constants_are_recorded_once",),
        _ALL,
    ),
    Mutant(
        "mask-tags-lost-in-views",
        (_engine("masks.py", '    "view": _by_view,\n', ""),),
        ("tests/unit/engine/test_masks.py::test_masked_entries_are_zero_whatever_the_score",),
        _ALL,
    ),
    Mutant(
        "masks-by-value-alone",
        (
            _engine(
                "specifiedops.py",
                "    result = reduce.softmax(value, dim, mask=~masked)\n",
                "    result = reduce.softmax(value, dim)\n",
            ),
        ),
        ("tests/unit/engine/test_masks.py::test_masked_entries_are_zero_whatever_the_score",),
        _ALL,
    ),
    Mutant(
        "alpha-fused",
        (
            _engine(
                "exactops.py",
                "    if alpha == 1:\n",
                "    if alpha == 1 or True:\n        if alpha != 1:\n            return func(*args, "
                "**kwargs)\n",
            ),
        ),
        ("tests/unit/engine/test_dispatch.py::test_alpha_is_two_roundings_and_scalars_on_halves_one",),
        _ALL,
    ),
    Mutant(
        "halves-with-rounded-scalars",
        (
            _engine(
                "exactops.py",
                "        if type(number) in (int, float):\n",
                "        if number is None:\n",
            ),
        ),
        ("tests/unit/engine/test_dispatch.py::test_alpha_is_two_roundings_and_scalars_on_halves_one",),
        _ALL,
    ),
    Mutant(
        "square-is-not-pow-two",
        (
            _engine(
                "specifiedops.py",
                '    return mode.call("mul.Tensor", args[0], args[0])\n',
                "    return args[0].double().pow(2).add(2.0**-60).to(args[0].dtype)\n",
            ),
        ),
        ("tests/unit/engine/test_exact.py::test_unary",),
        _ALL,
    ),
    Mutant(
        "uninitialised-memory",
        (
            _engine(
                "structuralops.py",
                "return checked(mode, func, func(*args, **kwargs).zero_())",
                "return checked(mode, func, func(*args, **kwargs).fill_(1))",
            ),
        ),
        ("tests/unit/engine/test_dispatch.py::test_empty_is_zero",),
        _ALL,
    ),
    Mutant(
        "activations-stored-type",
        (
            _engine(
                "specifiedops.py",
                "return stored[index].to(table.dtype)",
                "return stored[index].to(torch.float32)",
            ),
        ),
        ("tests/property/test_invariance_fused.py::test_types",),
        _ALL,
    ),
    Mutant(
        "training-mode-accepted",
        (_engine("refusals.py", "        if child.training:\n", "        if child.training is None:\n"),),
        ("tests/unit/engine/test_generate.py::test_training_mode_is_refused",),
        _ALL,
    ),
    Mutant(
        "long-rope-accepted",
        (
            _engine(
                "refusals.py", "            if length > limit:\n", "            if length > limit * 2**20:\n"
            ),
        ),
        ("tests/unit/engine/test_generate.py::test_dynamic_rope_holds_within_the_original_length",),
        _ALL,
    ),
    Mutant(
        "state-of-the-process-kept",
        (_engine("context.py", "        stack.enter_context(default_fpenv())\n", ""),),
        ("tests/unit/engine/test_context.py::test_flush_to_zero_is_off_on_every_thread_and_comes_back",),
        _ALL,
    ),
    # ---- loading
    Mutant(
        "trailing-bytes-accepted",
        (_models("safetensors_file.py", "    if reached < size:\n", "    if reached < 0:\n"),),
        ("tests/unit/models/test_folder.py::test_refused_shards",),
    ),
    Mutant(
        "truncated-file-accepted",
        (_models("safetensors_file.py", "    if reached > size:\n", "    if reached < 0:\n"),),
        ("tests/unit/models/test_folder.py::test_refused_shards",),
    ),
    Mutant(
        "nan-weights-accepted",
        (
            _models(
                "build.py",
                "        bad = describe_bad(name, tensor, nan_only=name not in parameters)\n",
                "        bad = None\n",
            ),
        ),
        ("tests/cli/test_damaged_weights.py::test_tensor_is_named",),
        _ALL,
    ),
    Mutant(
        "parameter-not-loaded",
        (
            _models(
                "account.py",
                "        if source is None and name in parameters:\n",
                "        if source is None and name is None:\n",
            ),
        ),
        ("tests/unit/models/test_account.py::test_a_parameter_that_the_file_lacks",),
    ),
    Mutant(
        "unexplained-keys-accepted",
        (_models("account.py", "    if strange:\n", "    if strange is None:\n"),),
        ("tests/unit/models/test_folder.py::test_refused",),
    ),
    Mutant(
        "tied-by-config-alone",
        (
            _models(
                "account.py",
                "            if not same_bits(tensors[keys[0]], tensors[key]):\n",
                "            if tensors[key] is None:\n",
            ),
        ),
        ("tests/unit/models/test_account.py::test_one_parameter_with_two_values",),
    ),
)
