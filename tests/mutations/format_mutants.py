"""Mutants of what is signed: digests, canonical JSON, envelopes, traces, contradictions, keys, privacy."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Edit, Mutant

_TRACE: Final = "tests/unit/trace"
_MANIFEST: Final = "tests/unit/manifest"


def _trace(name: str, old: str, new: str) -> Edit:
    return Edit(f"repro_audit/trace/{name}", old, new)


def _manifest(name: str, old: str, new: str) -> Edit:
    return Edit(f"repro_audit/manifest/{name}", old, new)


FORMAT_MUTANTS: Final = (
    # ---- digests
    Mutant(
        "dtype-left-out-of-rows",
        (
            _trace(
                "digest.py",
                'return dumps({"dtype": header.dtype, "shape": list(header.shape)})',
                'return dumps({"shape": list(header.shape)})',
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_row_digest_by_hand",),
        quick=True,
    ),
    Mutant(
        "shape-left-out-of-rows",
        (
            _trace(
                "digest.py",
                'return dumps({"dtype": header.dtype, "shape": list(header.shape)})',
                'return dumps({"dtype": header.dtype})',
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_row_digest_by_hand",),
        quick=True,
    ),
    Mutant(
        "row-key-without-salt",
        (_trace("digest.py", "return blake3(data, key=salt).digest()", "return blake3(data).digest()"),),
        (
            f"{_TRACE}/test_digest.py::test_row_digest_by_hand",
            f"{_MANIFEST}/test_private.py::test_nothing_of_the_inputs_is_in_manifest_or_trace",
        ),
        quick=True,
    ),
    Mutant(
        "row-without-key",
        (
            _trace(
                "digest.py",
                "return blake3(row_bytes(row, dtype), key=key).digest()",
                "return blake3(row_bytes(row, dtype)).digest()",
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_row_digest_by_hand",),
    ),
    Mutant(
        "nan-kept-in-digests",
        (
            _trace(
                "digest.py",
                "        bits[(bits & unsigned(magnitude)) > unsigned(largest)] = unsigned(canonical)\n",
                "",
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_nan_is_one_value_and_nothing_else_is",),
        quick=True,
    ),
    Mutant(
        "zero-signs-forgotten-in-digests",
        (
            _trace(
                "digest.py",
                "        return bits.tobytes()",
                "        bits[(bits & unsigned(magnitude)) == 0] = 0\n        return bits.tobytes()",
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_row_digest_by_hand",),
    ),
    Mutant(
        "storage-order-hashed",
        (_trace("digest.py", "data = np.ascontiguousarray(row).reshape(-1)", 'data = row.ravel(order="K")'),),
        (
            f"{_TRACE}/test_digest.py::test_logical_order_not_storage",
            "tests/property/test_trace_digest.py::test_strides_do_not_count",
        ),
    ),
    Mutant(
        "point-name-left-out",
        (_trace("digest.py", '            "name": name,\n', ""),),
        (f"{_TRACE}/test_digest.py::test_point_digest_by_hand",),
    ),
    Mutant(
        "point-dtype-left-out",
        (_trace("digest.py", '            "dtype": header.dtype,\n', ""),),
        (f"{_TRACE}/test_digest.py::test_point_digest_by_hand",),
    ),
    Mutant(
        "point-shape-left-out",
        (_trace("digest.py", '            "shape": list(header.shape),\n', ""),),
        (f"{_TRACE}/test_digest.py::test_point_digest_by_hand",),
    ),
    Mutant(
        "point-first-position-left-out",
        (_trace("digest.py", '            "first": first,\n', ""),),
        (f"{_TRACE}/test_digest.py::test_point_digest_by_hand",),
    ),
    Mutant(
        "point-order-in-the-root",
        (
            _trace(
                "digest.py", "return merkle_root(point_digests)", "return merkle_root(sorted(point_digests))"
            ),
        ),
        (f"{_TRACE}/test_order_and_extras.py::test_roots_bind_the_order",),
    ),
    Mutant(
        "leaves-and-nodes-alike",
        (
            _trace(
                "digest.py",
                'return hashlib.sha256(b"\\x01" + left + right).digest()',
                'return hashlib.sha256(b"\\x00" + left + right).digest()',
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_merkle_roots_of_rfc_6962",),
    ),
    Mutant(
        "odd-node-doubled",
        (
            _trace(
                "digest.py",
                "level = paired + level[2 * len(paired) :]",
                "level = paired + [node_hash(x, x) for x in level[2 * len(paired) :]]",
            ),
        ),
        (f"{_TRACE}/test_digest.py::test_merkle_roots_of_rfc_6962",),
    ),
    # ---- the trace file
    Mutant(
        "trace-hash-not-compared",
        (_trace("tracefile.py", "if sha256 != manifest.trace.sha256:", "if not sha256:"),),
        (
            f"{_TRACE}/test_tracefile.py::test_the_hash_is_checked_before_the_header_is_parsed",
            f"{_MANIFEST}/test_flips.py::test_every_byte_of_the_trace_counts",
        ),
        quick=True,
    ),
    Mutant(
        "trace-header-before-hash",
        (
            _trace(
                "tracefile.py",
                "        sha256, head = hash_stream(stream, size, 8 + MAX_HEADER)\n",
                "        sha256, head = hash_stream(stream, size, 8 + MAX_HEADER)\n        found = "
                "parse_header(head, size, METADATA)\n",
            ),
            _trace(
                "tracefile.py",
                '            raise _mismatch(f"{path.name} has another SHA-256")\n        found = '
                "parse_header(head, size, METADATA)\n",
                '            raise _mismatch(f"{path.name} has another SHA-256")\n',
            ),
        ),
        (f"{_TRACE}/test_tracefile.py::test_the_hash_is_checked_before_the_header_is_parsed",),
        quick=True,
    ),
    Mutant(
        "trace-rows-not-bound",
        (_trace("tracefile.py", "if found != claim.digests[index]:", "if not found:"),),
        (
            f"{_MANIFEST}/test_vectors.py::test_verdict",
            f"{_TRACE}/test_tracefile.py::test_rows_changed_after_the_hash_are_noticed",
        ),
    ),
    Mutant(
        "trace-rows-where-none-may-be",
        (_trace("tracefile.py", "                if outside:\n", "                if outside < 0:\n"),),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "trace-layout-not-compared",
        (_trace("tracefile.py", "if found.get(spec.name) != (spec, offset):", "if spec.name not in found:"),),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "trace-extra-tensors",
        (_trace("tracefile.py", "if len(found) != len(placed):", "if len(found) < len(placed):"),),
        (f"{_TRACE}/test_order_and_extras.py::test_a_tensor_before_the_others_is_refused",),
    ),
    # ---- envelopes and trust
    Mutant(
        "parsed-before-verified",
        (
            _manifest(
                "opening.py",
                "    opened = open_envelope(data, keys, allow_untrusted=allow_untrusted)\n    manifest = "
                "parse_manifest(opened.payload)\n",
                "    manifest = parse_manifest(open_envelope(data, keys, "
                "allow_untrusted=True).payload)\n    opened = open_envelope(data, keys, "
                "allow_untrusted=allow_untrusted)\n",
            ),
        ),
        (f"{_MANIFEST}/test_dsse.py::test_nothing_is_parsed_before_it_is_verified",),
        quick=True,
    ),
    Mutant(
        "trust-skipped",
        (
            _manifest(
                "dsse.py",
                "if not signers and not allow_untrusted:",
                "if not signers and not signatures and not allow_untrusted:",
            ),
        ),
        (
            f"{_MANIFEST}/test_dsse.py::test_unsigned_and_unknown_are_refused_unless_waived",
            f"{_MANIFEST}/test_vectors.py::test_verdict",
        ),
        quick=True,
    ),
    Mutant(
        "unsigned-accepted",
        (
            _manifest(
                "dsse.py",
                "if not signers and not allow_untrusted:",
                "if not signers and signatures and not allow_untrusted:",
            ),
        ),
        (
            f"{_MANIFEST}/test_dsse.py::test_unsigned_and_unknown_are_refused_unless_waived",
            f"{_MANIFEST}/test_vectors.py::test_verdict",
        ),
    ),
    Mutant(
        "signature-not-verified",
        (
            _manifest(
                "dsse.py",
                "made_by = [key for key in keys if key.verifies(signature, covered)]",
                "made_by = [key for key in keys if keyid in key.known_ids]",
            ),
        ),
        (
            f"{_MANIFEST}/test_dsse.py::test_every_trusted_key_is_tried_whatever_the_key_id",
            f"{_MANIFEST}/test_flips.py::test_every_byte_of_the_manifest_counts",
        ),
        quick=True,
    ),
    Mutant(
        "signature-over-the-payload-alone",
        (
            _manifest(
                "dsse.py",
                'return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)',
                "return payload",
            ),
        ),
        (f"{_MANIFEST}/test_dsse.py::test_pre_authentication_encoding_of_the_dsse_specification",),
    ),
    Mutant(
        "invalid-signature-ignored",
        (
            _manifest(
                "dsse.py",
                "                if keyid in key.known_ids:\n",
                "                if keyid in key.known_ids and not allow_untrusted:\n",
            ),
        ),
        (f"{_MANIFEST}/test_dsse.py::test_an_invalid_signature_is_refused_even_if_trust_is_waived",),
    ),
    Mutant(
        "key-id-of-another-key",
        (_manifest("dsse.py", "if keyid and keyid not in made_by[0].known_ids:", "if keyid is None:"),),
        (
            f"{_MANIFEST}/test_vectors.py::test_verdict",
            f"{_MANIFEST}/test_flips.py::test_every_byte_of_the_manifest_counts",
        ),
    ),
    Mutant(
        "signers-counted-twice",
        (
            _manifest(
                "dsse.py",
                "if all(key.raw() != made_by[0].raw() for key in signers):",
                "if signers is not None:",
            ),
        ),
        (f"{_MANIFEST}/test_dsse.py::test_a_key_that_signs_twice_counts_once",),
    ),
    Mutant(
        "base64-spelt-freely",
        (_manifest("dsse.py", "if base64.b64encode(data).decode() != text:", "if not text and data:"),),
        (f"{_MANIFEST}/test_flips.py::test_every_byte_of_the_manifest_counts",),
    ),
    Mutant(
        "only-the-first-trusted-key",
        (_manifest("dsse.py", "made_by = [key for key in keys if", "made_by = [key for key in keys[:1] if"),),
        (f"{_MANIFEST}/test_dsse.py::test_every_trusted_key_is_tried_whatever_the_key_id",),
    ),
    # ---- canonical JSON
    Mutant(
        "other-spellings-accepted",
        (_manifest("canonical.py", "    if again != data:\n", "    if not again:\n"),),
        (
            "tests/property/test_canonical.py::test_another_spelling_is_refused",
            f"{_MANIFEST}/test_vectors.py::test_verdict",
        ),
    ),
    Mutant(
        "repeated-keys-accepted",
        (
            _manifest(
                "canonical.py", "            if key in out:\n", "            if key in out and not key:\n"
            ),
        ),
        ("tests/property/test_canonical.py::test_refusals",),
    ),
    Mutant(
        "floats-accepted",
        (_manifest("canonical.py", "parse_float=refuse", "parse_float=float"),),
        (
            "tests/property/test_canonical.py::test_refusals",
            f"{_MANIFEST}/test_vectors.py::test_verdict",
        ),
    ),
    Mutant(
        "nan-accepted",
        (_manifest("canonical.py", "parse_constant=refuse", "parse_constant=str"),),
        (
            "tests/property/test_canonical.py::test_refusals",
            f"{_MANIFEST}/test_vectors.py::test_verdict",
        ),
        quick=True,
    ),
    Mutant(
        "integers-beyond-exactness",
        (
            _manifest(
                "canonical.py", "if len(digits) > 17 or abs(int(digits)) > MAX_INT:", "if len(digits) > 17:"
            ),
        ),
        ("tests/property/test_canonical.py::test_refusals",),
    ),
    Mutant(
        "nesting-unbounded",
        (_manifest("canonical.py", "        if level > depth:\n", "        if level > 10**6:\n"),),
        ("tests/property/test_canonical.py::test_refusals",),
    ),
    Mutant(
        "size-unbounded",
        (_manifest("canonical.py", "    if len(data) > limit:\n", "    if len(data) > 2**40:\n"),),
        ("tests/property/test_canonical.py::test_size_is_checked_first",),
    ),
    Mutant(
        "files-read-without-bound",
        (_manifest("files.py", "data = stream.read(limit + 1)", "data = stream.read()[: limit]"),),
        (f"{_MANIFEST}/test_files.py::test_reading_is_bounded_and_waits_for_no_pipe",),
    ),
    Mutant(
        "unknown-keys-accepted",
        (
            _manifest(
                "reader.py",
                "            if key not in required and key not in optional:\n",
                "            if not key:\n",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "names-with-control-characters",
        (
            _manifest(
                "reader.py", "        if not value or not value.isprintable():\n", "        if not value:\n"
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "file-names-outside-the-folder",
        (
            _manifest(
                "reader.py",
                'any(p in ("", ".", "..") for p in value.split("/"))',
                'any(p in ("", ".") for p in value.split("/"))',
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    # ---- contradictions
    Mutant(
        "run-root-not-checked",
        (_manifest("consistency.py", "if run_root(roots).hex() != manifest.root:", "if not roots:"),),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "sequence-root-not-checked",
        (
            _manifest(
                "consistency.py",
                "if sequence_root([bytes.fromhex(digest) for digest in sequence.digests]).hex() != "
                "sequence.root:",
                "if not sequence.digests:",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "model-root-not-checked",
        (
            _manifest(
                "consistency.py",
                "if model.files and root_of_digests(file.sha256 for file in in_order) != model.root:",
                "if model.files and not in_order:",
            ),
        ),
        (f"{_MANIFEST}/test_contradictions.py::test_the_root_is_that_of_the_files_or_tensors",),
    ),
    Mutant(
        "guilty-block-left-out",
        (
            _manifest(
                "consistency.py",
                "            if not recorded:\n",
                "            if not recorded and not held:\n",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "blocks-of-other-points",
        (
            _manifest(
                "consistency.py",
                "            for name in sorted(expected ^ recorded):\n",
                "            for name in sorted(expected & set()):\n",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "answer-cut-short",
        (
            _manifest(
                "consistency.py",
                "if drawn < decoding.max_new_tokens and prompt and (not drawn or sequence.generated[-1] "
                "not in stops):",
                "if drawn < 0:",
            ),
        ),
        (f"{_MANIFEST}/test_contradictions.py::test_an_answer_ends_where_it_was_cut_or_at_a_stop_token",),
    ),
    Mutant(
        "answer-goes-on-after-its-end",
        (
            _manifest(
                "consistency.py",
                "if any(token in stops for token in sequence.generated[:-1]):",
                "if sequence.generated is stops:",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "positions-not-counted",
        (
            _manifest(
                "consistency.py",
                "if prompt and sequence.positions != prompt + max(drawn - 1, 0):",
                "if prompt < 0:",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "spans-of-any-length",
        (
            _manifest(
                "consistency.py", "if (span.first, span.count) not in (full, allowed):", "if span.count < 0:"
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    Mutant(
        "edges-to-later-points",
        (
            _manifest(
                "consistency.py",
                "            if edge.point >= index:\n",
                "            if edge.point > len(manifest.points):\n",
            ),
        ),
        (f"{_MANIFEST}/test_vectors.py::test_verdict",),
    ),
    # ---- keys, privacy, attestations
    Mutant(
        "private-key-readable",
        (_manifest("keys.py", "PendingFile(path, mode=0o600) as secret", "PendingFile(path) as secret"),),
        (f"{_MANIFEST}/test_keys.py::test_a_pair_signs_and_verifies",),
    ),
    Mutant(
        "commitment-not-opened",
        (
            _manifest(
                "private.py",
                "    if inputs.claim() != manifest.privacy:\n",
                "    if inputs.claim() is None:\n",
            ),
        ),
        (f"{_MANIFEST}/test_private.py::test_the_inputs_file_opens_the_commitment",),
    ),
    Mutant(
        "commitment-without-salt",
        (
            _manifest(
                "private.py",
                "hashlib.sha256(INPUTS_DOMAIN + self.salt + body)",
                "hashlib.sha256(INPUTS_DOMAIN + body)",
            ),
        ),
        (f"{_MANIFEST}/test_contradictions.py::test_the_commitment_is_salted",),
    ),
    Mutant(
        "attestation-of-another-manifest",
        (
            _manifest(
                "attest.py",
                "if attestation.manifest_sha256 != hashlib.sha256(payload).hexdigest():",
                "if not attestation.manifest_sha256:",
            ),
        ),
        (f"{_MANIFEST}/test_attest.py::test_it_speaks_of_one_manifest",),
    ),
    Mutant(
        "attestation-of-another-root",
        (
            _manifest(
                "attest.py",
                "    if attestation.run_root != manifest.root:\n",
                "    if not attestation.run_root:\n",
            ),
        ),
        (f"{_MANIFEST}/test_attest.py::test_another_run_root_is_refused",),
    ),
    Mutant(
        "temporary-file-left",
        (_manifest("files.py", "            self._temporary.unlink(missing_ok=True)\n", ""),),
        (f"{_MANIFEST}/test_files.py::test_a_file_that_appears_meanwhile_is_not_replaced",),
    ),
    Mutant(
        "existing-file-replaced",
        (_manifest("files.py", "            if self.overwrite:\n", "            if True:\n"),),
        (f"{_MANIFEST}/test_files.py::test_a_file_that_appears_meanwhile_is_not_replaced",),
    ),
    Mutant(
        "first-of-several-files-stays",
        (
            _manifest(
                "files.py", "        for path in named:\n            path.unlink(missing_ok=True)\n", ""
            ),
        ),
        (f"{_MANIFEST}/test_files.py::test_several_files_get_their_names_together_or_not_at_all",),
    ),
)
