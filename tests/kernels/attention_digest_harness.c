/* Prints digests of what attention.c, fused.c and blake3.c compute from a fixed integer recurrence. */
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"

int RK_NAME(attention)(const problem *p, float scale, float softcap, finding *found);
int RK_NAME(row_digests)(const int64_t *fields, int64_t jobs);
int RK_NAME(rms_norm_module)(const void *x, int x_type, int64_t stride, const void *w, int w_type, void *out,
                             int64_t rows, int64_t n, float eps, int one_plus);
void RK_NAME(swiglu)(const void *gate, int64_t gate_stride, const void *up, int64_t up_stride, void *out, int type,
                     int64_t rows, int64_t n);
void RK_NAME(rotary)(const void *x, void *out, const void *cosine, const void *sine, int type, const int64_t *sizes,
                     const int64_t *strides);

static uint32_t state = 1;

static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }

static void *fill(int type, int64_t n) { /* both signs, exponents of 2^-6 to 2 */
    void *x = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t u = next();
        rk_store(x, type, i, rk_float((u & 0x807fffffu) | (121 + (u >> 23) % 8) << 23));
    }
    return x;
}

static void print(const char *name, const void *data, int64_t length, int64_t kind) {
    static const uint32_t key[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    _Alignas(4) unsigned char out[32];
    const int64_t fields[9] = {(int64_t)data, 1, 1, 0, 0, length, kind, (int64_t)key, (int64_t)out};
    RK_NAME(row_digests)(fields, 1);
    printf("%s ", name);
    for (int i = 0; i < 32; ++i) printf("%02x", out[i]);
    printf("\n");
}

int main(void) {
    enum { B = 2, H = 4, HKV = 2, SQ = 70, SK = 300, D = 36, DV = 33 };
    for (int type = 0; type < 3; ++type) {
        const int64_t size = rk_itemsize(type);
        void *q = fill(type, B * H * SQ * D), *k = fill(type, B * HKV * SK * D), *v = fill(type, B * HKV * SK * DV);
        void *out = malloc(B * SQ * H * D * 4);
        int64_t positions[B * SQ];
        for (int i = 0; i < B * SQ; ++i) positions[i] = SK - SQ + i % SQ;
        problem p = {
            .q = q, .k = k, .v = v, .out = out, .q_positions = positions, .B = B, .H = H, .Hkv = HKV, .Sq = SQ,
            .Sk = SK, .D = D, .Dv = DV, .q_type = type, .k_type = type, .v_type = type, .out_type = type,
            .q_stride = {H * SQ * D, SQ * D, D}, .k_stride = {HKV * SK * D, SK * D, D},
            .v_stride = {HKV * SK * DV, SK * DV, DV}, .out_stride = {SQ * H * DV, DV, H * DV},
        };
        for (int capped = 0; capped < 2; ++capped) {
            finding found;
            p.has_softcap = capped;
            p.window = capped ? 90 : 0;
            if (RK_NAME(attention)(&p, 0.17f, 2.0f, &found) != 0 || found.kind != 0) return 1;
            print("attention", out, B * SQ * H * DV * size, 0);
        }
        for (int one_plus = 0; one_plus < 2; ++one_plus) {
            if (RK_NAME(rms_norm_module)(q, type, D, k, type, out, 100, D, 1e-5f, one_plus) != 0) return 1;
            print("rms_norm_module", out, 100 * D * size, 0);
        }
        RK_NAME(swiglu)(q, D, k, D, out, type, 100, D);
        print("swiglu", out, 100 * D * size, 0);
        const int64_t sizes[5] = {B, H, SQ, D, D - 4}, d = D, row = SQ * D, all = H * SQ * D;
        const int64_t strides[10] = {all, row, d, all, row, d, 0, D, 0, D};
        RK_NAME(rotary)(q, out, k, v, type, sizes, strides);
        print("rotary", out, B * H * SQ * D * size, 0);
        free(q), free(k), free(v), free(out);
    }
    static _Alignas(8) unsigned char bytes[300000];
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)(next() >> 24);
    for (int kind = 0; kind < 7; ++kind)
        for (int64_t n = 0; n < (int64_t)sizeof bytes; n = n * 3 + 8) print("digest", bytes, n, kind);
    return 0;
}
