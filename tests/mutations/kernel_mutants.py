"""Mutants of the arithmetic: the C kernels, and the scalar specification that they are compared with."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Edit, Mutant

_CPU: Final = "kernels/repro_kernels/cpu"
_SPEC: Final = "kernels/repro_kernels/spec"
_ALL: Final = ("*",)
_GEMM: Final = ("gemm",)
#: The loader refuses a library with wrong products; switched off, the comparisons must notice by themselves.
_UNGUARDED: Final = Edit(f"{_CPU}/known_answer.py", "if found != ANSWER:", "if found is None:")


def _source(name: str, old: str, new: str) -> Edit:
    return Edit(f"{_CPU}/csrc/{name}", old, new)


def _spec(name: str, old: str, new: str) -> Edit:
    return Edit(f"{_SPEC}/{name}", old, new)


KERNEL_MUTANTS: Final = (
    # ---- matrix products: order, roundings, segments
    Mutant(
        "gemm-order",
        (
            _UNGUARDED,
            _source(
                "gemm.c",
                "for (int64_t k = 0; k < kc; k++) {\n        rk_vec w",
                "for (int64_t k = kc - 1; k >= 0; k--) {\n        rk_vec w",
            ),
        ),
        ("tests/kernels/test_gemm.py::test_linear_is_the_specification",),
        _GEMM,
        quick=True,
    ),
    Mutant(
        "gemm-order-guarded",
        (
            _source(
                "gemm.c",
                "for (int64_t k = 0; k < kc; k++) {\n        rk_vec w",
                "for (int64_t k = kc - 1; k >= 0; k--) {\n        rk_vec w",
            ),
        ),
        ("tests/kernels/test_known_answer.py::test_every_variant_knows_it",),
        _GEMM,
    ),
    Mutant(
        "gemm-row-order",
        (
            _UNGUARDED,
            _source(
                "gemm_row.h",
                "p[g] = rk_rfma(rk_rset(a[k + i]), r[i], p[g]);",
                "p[g] = rk_rfma(rk_rset(a[k + RK_RL - 1 - i]), r[RK_RL - 1 - i], p[g]);",
            ),
        ),
        ("tests/kernels/test_gemm.py::test_one_row_of_a_weight_is_the_specification",),
        _GEMM,
    ),
    Mutant(
        "gemm-one-accumulator",
        (
            _UNGUARDED,
            _source(
                "gemm.c",
                "for (int v = 0; v < wide * RK_NV; v++) p[m][v] = rk_vset(0.0f);",
                "for (int v = 0; v < wide * RK_NV; v++) p[m][v] = first ? rk_vset(0.0f) : rk_vload(acc + "
                "m * width + v * RK_VL);",
            ),
            _source(
                "gemm.c",
                "rk_vstore(to, (first ? rk_vset(0.0f) : rk_vload(to)) + p[m][v]);",
                "rk_vstore(to, p[m][v]);",
            ),
        ),
        ("tests/kernels/test_gemm.py::test_linear_is_the_specification",),
        _GEMM,
    ),
    Mutant(
        "gemm-minus-zero-kept",
        (
            _UNGUARDED,
            _source(
                "gemm.c",
                "rk_vstore(to, (first ? rk_vset(0.0f) : rk_vload(to)) + p[m][v]);",
                "rk_vstore(to, first ? (rk_vec)p[m][v] : (rk_vec)(rk_vload(to) + p[m][v]));",
            ),
        ),
        ("tests/kernels/test_gemm.py::test_a_negative_zero_partial_sum_is_washed",),
        _GEMM,
    ),
    Mutant(
        "fma-split-avx512",
        (_UNGUARDED, _source("gemm_simd.h", "return _mm512_fmadd_ps(a, b, c);", "return a * b + c;")),
        (
            "tests/kernels/test_gemm.py::test_linear_is_the_specification",
            "tests/kernels/test_fma_rounding.py::test_products",
        ),
        _GEMM,
        "avx512",
    ),
    Mutant(
        "fma-split-avx2",
        (
            _UNGUARDED,
            _source(
                "gemm_simd.h",
                "RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return _mm256_fmadd_ps(a, b, c); }",
                "RK_INLINE rk_vec rk_vfma(rk_vec a, rk_vec b, rk_vec c) { return a * b + c; }",
            ),
        ),
        (
            "tests/kernels/test_gemm.py::test_linear_is_the_specification",
            "tests/kernels/test_fma_rounding.py::test_products",
        ),
        _GEMM,
        "avx2",
    ),
    Mutant(
        "fma-split-base",
        (
            _UNGUARDED,
            _source(
                "gemm_simd.h", "return (__m128d)(u + (away & inexact & ((u & one) - one)));", "return s;"
            ),
        ),
        ("tests/kernels/test_fma_rounding.py::test_products",),
        _GEMM,
        "base",
    ),
    Mutant(
        "fma-split-scalar",
        (_source("common.h", "    return __builtin_fmaf(a, b, c);", "    return a * b + c;"),),
        (
            "tests/kernels/test_attention.py::test_what_no_query_attends_to_does_not_matter",
            "tests/kernels/test_fma_rounding.py::test_attention",
        ),
        _ALL,
    ),
    Mutant(
        "fma-double-rounding-scalar",
        (_source("common.h", "return (float)rk_double(u + (inexact_even ? away : 0));", "return (float)s;"),),
        ("tests/kernels/test_fma_rounding.py::test_attention",),
        _ALL,
        "base",
    ),
    Mutant(
        "segment-length",
        (_UNGUARDED, _source("common.h", "#define RK_SEGMENT 128", "#define RK_SEGMENT 256")),
        (
            "tests/kernels/test_gemm.py::test_linear_is_the_specification",
            "tests/kernels/test_attention.py::test_key_counts_around_segments",
            "tests/kernels/test_reduce.py::test_rows",
            "tests/kernels/test_softmax.py::test_longer_rows",
        ),
        _ALL,
    ),
    Mutant(
        "segment-length-spec",
        (_spec("dot.py", "SEGMENT = 128", "SEGMENT = 64"),),
        ("tests/kernels/test_spec.py::test_a_segment_is_128_long",),
    ),
    Mutant(
        "segment-ignores-position",
        (
            _UNGUARDED,
            Edit(f"{_CPU}/product.py", "b.shape[-2], k, k_start % SEGMENT)", "b.shape[-2], k, 0)"),
        ),
        ("tests/kernels/test_gemm.py::test_matmul_is_the_specification_from_any_position",),
        _GEMM,
    ),
    Mutant(
        "spec-order",
        (_spec("dot.py", "        for k in segment:", "        for k in reversed(segment):"),),
        ("tests/kernels/test_spec.py",),
    ),
    Mutant(
        "spec-fma-split",
        (_spec("dot.py", "p = fma(x[k], w[k], p)", "p = add(mul(x[k], w[k]), p)"),),
        ("tests/kernels/test_fma_rounding.py::test_the_specification",),
        _GEMM,
    ),
    Mutant(
        "bias-after-rounding",
        (
            _spec(
                "dot.py",
                "return [[rn(acc if b is None else add(acc, b[n]), out) for n, acc in enumerate(row)] "
                "for row in accs]",
                "return [[rn(acc if b is None else add(rn(acc, out), b[n]), out) for n, acc in "
                "enumerate(row)] for row in accs]",
            ),
        ),
        ("tests/kernels/test_spec.py::test_linear_adds_its_bias_before_the_last_rounding",),
    ),
    Mutant(
        "bias-alpha-fused",
        (
            _source(
                "gemm.c",
                "rk_store(c, d, to + j, added[j] + alpha * acc[j]);",
                "rk_store(c, d, to + j, rk_fmaf(alpha, acc[j], added[j]));",
            ),
        ),
        ("tests/kernels/test_gemm.py::test_addmm_and_baddbmm_are_the_specification",),
        _GEMM,
    ),
    # ---- stores and loads
    Mutant(
        "bf16-truncated",
        (
            _source(
                "common.h",
                "uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;",
                "uint32_t rounded = u >> 16;",
            ),
        ),
        ("tests/kernels/test_gemm.py::test_linear_is_the_specification",),
        _GEMM,
        quick=True,
    ),
    Mutant(
        "bf16-ties-away",
        (
            _source(
                "common.h",
                "uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;",
                "uint32_t rounded = (u + 0x8000u) >> 16;",
            ),
        ),
        ("tests/kernels/test_stores.py::test_every_upper_half",),
        _GEMM,
    ),
    Mutant(
        "bf16-nan-payload",
        (
            _source(
                "common.h",
                "return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);",
                "return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);",
            ),
        ),
        ("tests/kernels/test_stores.py::test_every_upper_half",),
        _GEMM,
    ),
    Mutant(
        "fp16-ties-away",
        (
            _source(
                "common.h",
                "else h = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1)) >> 13;",
                "else h = (u - (112u << 23) + 0x1000u) >> 13;",
            ),
        ),
        ("tests/kernels/test_stores.py::test_every_upper_half",),
        _GEMM,
    ),
    Mutant(
        "fp16-subnormals-flushed",
        (
            _source(
                "common.h",
                "else if (u < 0x38800000u) h = rk_bits(rk_float(u) + 0.5f) - 0x3f000000u;",
                "else if (u < 0x38800000u) h = 0;",
            ),
        ),
        ("tests/kernels/test_stores.py::test_every_upper_half",),
        _GEMM,
    ),
    Mutant(
        "nan-not-canonical-in-stores",
        (
            _source(
                "common.h",
                "return rk_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u);",
                "return rk_float(u);",
            ),
            _source(
                "gemm_simd.h",
                "return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);",
                "return (void)nan, v;",
            ),
        ),
        ("tests/kernels/test_stores.py::test_a_nan_of_float32_is_the_canonical_one",),
        _GEMM,
        "avx512",
    ),
    Mutant(
        "flush-to-zero",
        (_source("common.h", "_mm_setcsr(0x1f80);", "_mm_setcsr(0x9fc0);"),),
        ("tests/kernels/test_gemm.py::test_linear_is_the_specification",),
        _GEMM,
    ),
    Mutant(
        "callers-rounding-mode-kept",
        (_source("common.h", "_mm_setcsr(0x1f80);", "_mm_setcsr(rk_fp_saved_);"),),
        ("tests/kernels/test_gemm.py::test_instruction_set_threads_and_the_callers_rounding_change_no_bit",),
        _GEMM,
    ),
    # ---- sums, norms
    Mutant(
        "sum-order",
        (
            _source(
                "reduce.h",
                "for (int64_t j = 0; j < count; ++j) sums[(s + j) / segments] += parts[j];",
                "for (int64_t j = count - 1; j >= 0; --j) sums[(s + j) / segments] += parts[j];",
            ),
        ),
        (
            "tests/kernels/test_reduce.py::test_rows",
            "tests/kernels/test_softmax.py::test_longer_rows",
            "tests/kernels/test_norm.py::test_layer_and_rms_norm",
        ),
        _ALL,
    ),
    Mutant(
        "sum-columns-one-chain",
        (
            _source(
                "reduce.c",
                "const int64_t end = rk_min64(n, k + RK_SEGMENT);\n            memset",
                "const int64_t end = n;\n            memset",
            ),
        ),
        ("tests/kernels/test_reduce_columns.py::test_columns_longer_than_a_segment",),
        _ALL,
    ),
    Mutant(
        "mean-by-reciprocal",
        (
            _source(
                "reduce.c",
                "const float y = divide ? acc / divisor : acc;",
                "const float y = divide ? acc * (1.0f / divisor) : acc;",
            ),
        ),
        ("tests/kernels/test_reduce.py::test_rows",),
        _ALL,
    ),
    Mutant(
        "variance-one-pass",
        (
            _source(
                "reduce.c",
                "    if (mode == RK_DEVIATION)\n        for (int64_t i = 0; i < n; ++i) {\n            "
                "const float d = t[i] - center;\n            t[i] = d * d;",
                "    if (mode == RK_DEVIATION)\n        for (int64_t i = 0; i < n; ++i) {\n            "
                "t[i] = t[i] * t[i] - center * center;",
            ),
        ),
        ("tests/kernels/test_reduce.py::test_rows",),
        _ALL,
    ),
    Mutant(
        "variance-divisor-not-clamped",
        (
            _spec(
                "reduce.py",
                "divisor = max(Fraction(len(ts)) - Fraction(correction), Fraction(0))",
                "divisor = Fraction(len(ts)) - Fraction(correction)",
            ),
        ),
        ("tests/kernels/test_spec.py::test_variance_divides_by_what_is_left",),
    ),
    Mutant(
        "cumsum-rounds-its-state",
        (
            _spec(
                "reduce.py",
                "        c = add(c, x)\n        result.append(rn(c, out))",
                "        c = rn(add(c, x), out)\n        result.append(c)",
            ),
        ),
        ("tests/kernels/test_spec.py::test_cumsum_keeps_binary32_between_its_results",),
    ),
    Mutant(
        "norm-eps-outside",
        (
            _source(
                "reduce_norm.c",
                "const float inverse = rk_rsqrtf(sums[r] / (float)n + eps);",
                "const float inverse = rk_rsqrtf(sums[r] / (float)n) + eps;",
            ),
        ),
        ("tests/kernels/test_norm.py::test_layer_and_rms_norm",),
        _ALL,
    ),
    Mutant(
        "batch-norm-folded",
        (
            _source(
                "reduce_norm.c",
                "            float v = (rk_load(x, dtype, i) - m) * inverse;\n            if (w) v *= w[c];",
                "            float v = (rk_load(x, dtype, i) - m) * (w ? inverse * w[c] : inverse);",
            ),
        ),
        ("tests/kernels/test_norm.py::test_group_and_batch_norm",),
        _ALL,
    ),
    Mutant(
        "rms-module-cast-missing",
        (_source("fused.c", "if (!one_plus) round_to(row, n, x_type);", ""),),
        (
            "tests/kernels/test_fused.py::test_rms_norm_module",
            "tests/kernels/test_fused.py::test_llama_norm_equals_the_modules_own_steps",
        ),
        _ALL,
    ),
    Mutant(
        "swiglu-sigmoid-times-x",
        (_source("fused.c", "x[i] = x[i] / (1.0f + e[i]);", "x[i] = x[i] * (1.0f / (1.0f + e[i]));"),),
        ("tests/kernels/test_fused.py::test_swiglu",),
        _ALL,
    ),
    Mutant(
        "rotary-fused",
        (
            _source(
                "fused.c",
                "sn[i] = sign * other[i] * sn[i];",
                "sn[i] = rk_fmaf(sign * other[i], sn[i], 0x1p-149f);",
            ),
        ),
        ("tests/kernels/test_fused.py::test_rotary",),
        _ALL,
    ),
    # ---- softmax and attention
    Mutant(
        "softmax-maximum-of-all",
        (
            _source(
                "reduce_softmax.c",
                "const int32_t key = allowed[i] ? rk_key(t[i]) : ~RK_KEY_INFINITY;",
                "const int32_t key = rk_key(t[i]);",
            ),
        ),
        ("tests/kernels/test_softmax.py::test_softmax",),
        _ALL,
    ),
    Mutant(
        "softmax-no-maximum",
        (
            _spec(
                "attention.py",
                "e = [elementary.exp(sub(x, m)) if a else 0.0",
                "e = [elementary.exp(x) if a else 0.0",
            ),
        ),
        ("tests/kernels/test_softmax.py::test_softmax",),
        _ALL,
    ),
    Mutant(
        "softmax-sum-descends",
        (_spec("attention.py", "return e, segment_sum(e, start)", "return e, segment_sum(e[::-1], start)"),),
        ("tests/kernels/test_softmax.py::test_longer_rows",),
        _ALL,
    ),
    Mutant(
        "softmax-by-reciprocal",
        (_source("reduce_softmax.c", "t[i] = e[i] / s;", "t[i] = e[i] * (1.0f / s);"),),
        ("tests/kernels/test_softmax.py::test_softmax",),
        _ALL,
    ),
    Mutant(
        "softmax-masked-counted",
        (
            _source(
                "reduce_softmax.c",
                "if (mask) for (int64_t i = 0; i < n; ++i) e[i] = mask[i] ? e[i] : 0.0f;",
                "",
            ),
        ),
        ("tests/kernels/test_softmax.py::test_softmax",),
        _ALL,
    ),
    Mutant(
        "log-softmax-by-log-of-quotient",
        (
            _source(
                "reduce_softmax.c",
                "for (int64_t i = 0; i < n; ++i) t[i] -= log_s;",
                "for (int64_t i = 0; i < n; ++i) t[i] = (float)((double)t[i] - (double)log_s * (1 + "
                "0x1p-30));",
            ),
        ),
        ("tests/kernels/test_softmax.py::test_softmax",),
        _ALL,
    ),
    Mutant(
        "attention-order",
        (
            _source(
                "attention_tile.h",
                "for (int64_t k = from; k < stop; ++k) {",
                "for (int64_t k = stop - 1; k >= from; --k) {",
            ),
        ),
        ("tests/kernels/test_attention.py::test_key_counts_around_segments",),
        _ALL,
    ),
    Mutant(
        "attention-segments-joined",
        (_source("attention_tile.h", "        if (stop > to) stop = to;", "        stop = to;"),),
        ("tests/kernels/test_attention.py::test_key_counts_around_segments",),
        _ALL,
    ),
    Mutant(
        "attention-segments-from-first-key",
        (
            _source(
                "attention.c",
                "const int64_t base = lo / RK_SEGMENT * RK_SEGMENT, n",
                "const int64_t base = lo / RK_NR * RK_NR, n",
            ),
        ),
        ("tests/kernels/test_attention_window.py::test_segments_do_not_follow_the_window",),
        _ALL,
    ),
    Mutant(
        "attention-division-last",
        (
            _source(
                "attention.c",
                "rk_vload(e + m * stride + k) / rk_vset(sums[m]));",
                "rk_vload(e + m * stride + k));",
            ),
            _source(
                "attention.c",
                "        float *row = t->out + m * width;\n",
                "        float *row = t->out + m * width;\n        for (int64_t d = 0; d < p->Dv; ++d) "
                "row[d] /= sums[m];\n",
            ),
        ),
        ("tests/kernels/test_attention.py::test_key_counts_around_segments",),
        _ALL,
    ),
    Mutant(
        "attention-scale-on-query",
        (
            _source("attention.c", "for (int64_t j = 0; j < n; ++j) x[j] *= scale;", "(void)scale;"),
            _source("attention.c", "to[i * RK_VL] = wide[i];", "to[i * RK_VL] = wide[i] * c->scale;"),
        ),
        ("tests/kernels/test_attention.py::test_against_the_specification",),
        _ALL,
    ),
    Mutant(
        "attention-score-not-rounded",
        (
            _source(
                "attention.c",
                "    if (n == 0) return state;\n    round_row(x, n, (int)p->out_type);",
                "    if (n == 0) return state;",
            ),
        ),
        ("tests/kernels/test_attention.py::test_depths",),
        _ALL,
    ),
    Mutant(
        "attention-sees-the-next-token",
        (_source("attention.h", "if (at + 1 < s.hi) s.hi = at + 1;", "if (at + 2 < s.hi) s.hi = at + 2;"),),
        ("tests/kernels/test_attention.py::test_against_the_specification",),
        _ALL,
    ),
    Mutant(
        "attention-window-one-longer",
        (
            _source(
                "attention.h",
                "at - p->window + 1 > s.lo) s.lo = at - p->window + 1;",
                "at - p->window > s.lo) s.lo = at - p->window;",
            ),
        ),
        ("tests/kernels/test_attention.py::test_against_the_specification",),
        _ALL,
    ),
    Mutant(
        "attention-non-finite-passes",
        (_source("attention.c", "if (open && not_finite(x[j])) state = BAD;", "(void)open;"),),
        ("tests/kernels/test_attention_window.py::test_an_overflowing_score_under_a_mask_stops_the_run",),
        _ALL,
    ),
    # ---- elementary functions
    Mutant(
        "exp-without-rounding-test",
        (
            _source(
                "elementary.h",
                "bad |= rk_round_test(rk_##name##_core((double)in[i]), RK_MARGIN, &out[i]);",
                "bad |= rk_round_test(rk_##name##_core((double)in[i]), RK_MARGIN * 0x1p-12, &out[i]);",
            ),
        ),
        ("tests/kernels/test_elementary.py::test_hard_cases",),
        _ALL,
    ),
    Mutant(
        "silu-by-sigmoid",
        (_spec("composite.py", "    return div(x, add(1.0, exp(-x)))", "    return mul(x, sigmoid(x))"),),
        (
            "tests/kernels/test_composite.py::test_other_trees_would_be_noticed",
            "tests/kernels/test_composite.py::test_edges_and_a_sample",
        ),
        _ALL,
    ),
    Mutant(
        "gelu-constant",
        (_spec("composite.py", 'fromhex("0x1.6a09e6p-1")', 'fromhex("0x1.6a09e8p-1")'),),
        ("tests/kernels/test_composite.py::test_constants_are_the_stated_ones",),
        _ALL,
    ),
    Mutant(
        "scalar-division-by-reciprocal",
        (
            Edit(
                f"{_CPU}/elementary.py",
                '_NUMBERS["div_scalar"], x, out_dtype, _Parameters(float(c)))',
                '_NUMBERS["div_scalar"], x * (1.0 / c), out_dtype, _Parameters(1.0))',
            ),
        ),
        ("tests/kernels/test_composite.py::test_division_by_a_scalar_is_not_a_product_with_its_reciprocal",),
        _ALL,
    ),
    # ---- order, indices, casts
    Mutant(
        "ties-to-highest",
        (
            _source(
                "reduce_order.c",
                "if (block > best) best = block, i = start;",
                "if (block >= best) best = block, i = start;",
            ),
        ),
        ("tests/kernels/test_sampling_edges.py::test_greedy_ties_far_apart",),
        _ALL,
    ),
    Mutant(
        "ties-to-highest-in-a-block",
        (
            _source(
                "reduce_order.c",
                "while (best_key(get(row[i]), least) != best) ++i;",
                "for (i = rk_min64(n, i + RK_BEST_BLOCK) - 1; best_key(get(row[i]), least) != best;) --i;",
            ),
        ),
        (
            "tests/kernels/test_order.py::test_along_an_axis",
            "tests/kernels/test_sampling.py::test_greedy_ties_go_to_the_lowest_id",
            "tests/kernels/test_sampling_edges.py::test_greedy_ties_far_apart",
        ),
        _ALL,
    ),
    Mutant(
        "ties-to-highest-spec",
        (_spec("order.py", "key=lambda i: (_rank(xs[i]), -i))", "key=lambda i: (_rank(xs[i]), i))"),),
        ("tests/kernels/test_spec.py::test_order_of_zeros_and_nans",),
    ),
    Mutant(
        "minus-zero-below-zero",
        (_source("reduce.h", "    u = u == 0x80000000u ? 0 : u;\n", ""),),
        ("tests/kernels/test_order.py::test_along_an_axis",),
        _ALL,
    ),
    Mutant(
        "relu-washes-minus-zero",
        (_spec("order.py", "    return maximum(x, 0.0)", "    return maximum(0.0, x)"),),
        ("tests/kernels/test_order.py::test_element_by_element",),
        _ALL,
    ),
    Mutant(
        "top-k-keeps-the-highest-index",
        (
            _spec(
                "order.py",
                "return sorted(range(len(xs)), key=lambda i: _rank(xs[i]), reverse=descending)",
                "return sorted(range(len(xs)), key=lambda i: (_rank(xs[i]), i), reverse=descending)",
            ),
        ),
        ("tests/kernels/test_order.py::test_along_an_axis",),
        _ALL,
    ),
    Mutant(
        "index-add-rounds-once",
        (
            _spec(
                "index.py",
                "result[i] = rn(add(result[i], mul(rn32(alpha), s)), fmt)",
                "result[i] = rn(fma(rn32(alpha), s, result[i]), fmt)",
            ),
            _spec(
                "index.py",
                "import BINARY32, Format, add, mul, rn, rn32",
                "import BINARY32, Format, fma, rn, rn32",
            ),
        ),
        ("tests/kernels/test_index.py::test_index_add",),
        _ALL,
    ),
    Mutant(
        "float-to-integer-wraps",
        (
            Edit(
                f"{_CPU}/convert.py",
                "return result.masked_fill(above, info.max).masked_fill(below, info.min).to(dtype)",
                "return result.to(dtype)",
            ),
        ),
        ("tests/kernels/test_convert.py::test_casts",),
        _ALL,
    ),
    Mutant(
        "ranges-round-twice",
        (
            _spec(
                "convert.py",
                "return [rn(Fraction(start) + i * Fraction(step), out) for i in range(count)]",
                "return [rn(rn(i * Fraction(step)) + Fraction(start), out) for i in range(count)]",
            ),
        ),
        ("tests/kernels/test_ranges.py::test_a_step_that_cancels_the_start",),
        _ALL,
    ),
    # ---- drawing
    Mutant(
        "philox-multiplier",
        (_spec("philox.py", "(0xD2511F53, 0xCD9E8D57)", "(0xD2511F53, 0xCD9E8D59)"),),
        ("tests/kernels/test_philox.py::test_known_answers",),
        quick=True,
    ),
    Mutant(
        "philox-rounds",
        (_spec("philox.py", "ROUNDS = 10", "ROUNDS = 7"),),
        ("tests/kernels/test_philox.py::test_known_answers",),
    ),
    Mutant(
        "philox-counter-without-id",
        (
            _spec(
                "philox.py",
                "(position, 0, sequence_id & ",
                "(position, 0, 0 * sequence_id & ",
            ),
        ),
        ("tests/kernels/test_philox.py::test_key_and_counter",),
    ),
    Mutant(
        "uniform-of-other-bits",
        (_spec("philox.py", "[0] >> 8) * 2.0**-24", "[0] & 0xFFFFFF) * 2.0**-24"),),
        ("tests/kernels/test_philox.py::test_uniform_is_the_top_24_bits_of_the_first_word",),
    ),
    Mutant(
        "draw-includes-the-threshold",
        (
            _source(
                "reduce_softmax.c",
                "if (sums[middle] > threshold) high = middle;",
                "if (sums[middle] >= threshold) high = middle;",
            ),
        ),
        ("tests/kernels/test_sampling_edges.py::test_a_sum_that_equals_the_threshold_is_not_beyond_it",),
        _ALL,
    ),
    Mutant(
        "draw-threshold-not-scaled",
        (_source("reduce_softmax.c", "const float threshold = u * c;", "const float threshold = u;"),),
        ("tests/kernels/test_sampling.py::test_draws",),
        _ALL,
    ),
    Mutant(
        "top-p-one-too-few",
        (
            _source(
                "reduce_softmax.c",
                "        c += y[i++];\n        if (c >= p) break;",
                "        c += y[i];\n        if (c >= p) break;\n        ++i;",
            ),
        ),
        ("tests/kernels/test_sampling.py::test_top_p_keeps_the_shortest_prefix_that_reaches_it",),
        _ALL,
    ),
    Mutant(
        "temperature-by-reciprocal",
        (
            _source(
                "reduce_softmax.c",
                "z[i] = logits[i] / temperature;",
                "z[i] = logits[i] * (1.0f / temperature);",
            ),
        ),
        ("tests/kernels/test_sampling_edges.py::test_temperature_divides",),
        _ALL,
    ),
    # ---- row digests in C
    Mutant(
        "digest-nan-kept",
        (_source("blake3.c", "m[i] = choose(nan, splat(0x7fc00000), m[i]);", "(void)nan;"),),
        ("tests/kernels/test_digest.py::test_nans_are_canonical_and_nothing_else_changes",),
        _ALL,
    ),
    Mutant(
        "digest-key-of-the-first-row",
        (
            _source(
                "blake3.c",
                "for (int i = 0; i < 8; ++i) word[i][l] = lane[l]->key[i];",
                "for (int i = 0; i < 8; ++i) word[i][l] = lane[0]->key[i];",
            ),
        ),
        ("tests/kernels/test_digest.py::test_mixed_jobs_equal_single_ones",),
        _ALL,
    ),
)
