/* Attention under profile fp32: the composition of repro_kernels.spec.attention, bit for bit.
 *
 *   score = RN_a(q . k), RN_a(* scale), soft cap; y = RN_a(softmax); out = RN_a(y . v), both products by the dot rule.
 *
 * A tile is a few query rows that share a key head. Their scores stand in scratch memory as whole rows, so nothing is
 * rescaled or computed twice. Lanes are keys for q . k (keys are packed [d][keys] once) and value columns for y . v, so
 * no chain crosses lanes; the segments of a key axis end at multiples of 128 of the position. Keys outside the tile's
 * attended range are not read; a masked key inside it has y = +0, which no partial sum can see (numerics.md, Masks).
 */
#include <stdlib.h>

#include "attention_tile.h"
#include "elementary.h"

#define MAX_SCRATCH ((int64_t)8 << 20) /* floats of packed keys and values at a time, beyond one key head */
#define MIN_PARALLEL 200000            /* multiplications below which a second thread costs more than it saves */

typedef struct {
    float scale, softcap;
} scalars;

/* ---- one row of scores ---- */

static void round_row(float *x, int64_t n, int dtype) {
    if (dtype == RK_BF16) for (int64_t j = 0; j < n; ++j) x[j] = rk_from_bf16(rk_to_bf16(x[j]));
    else if (dtype == RK_F16) for (int64_t j = 0; j < n; ++j) x[j] = rk_from_f16(rk_to_f16(x[j]));
}

static int any_infinite(const float *x, int64_t n) {
    uint32_t bad = 0;
    for (int64_t j = 0; j < n; ++j) bad |= (uint32_t)not_finite(x[j]);
    return bad != 0;
}

/* Lane by lane; the scores are finite or -inf, so the order of comparisons cannot matter (+0 or -0: exp is 1). */
static float maximum(const float *x, int64_t n) {
    float m = -RK_INFINITY, lane[RK_LANES];
    int64_t j = 0;
    if (n >= RK_LANES) {
        rk_vf best = rk_loadf(x);
        for (j = RK_LANES; j + RK_LANES <= n; j += RK_LANES) {
            const rk_vf next = rk_loadf(x + j);
            const rk_vi greater = next > best;
            best = (rk_vf)((greater & (rk_vi)next) | (~greater & (rk_vi)best));
        }
        rk_storef(lane, best);
        for (int l = 0; l < RK_LANES; ++l) m = lane[l] > m ? lane[l] : m;
    }
    for (; j < n; ++j) m = x[j] > m ? x[j] : m;
    return m;
}

/* x[lo..hi) from dot products to e_j = exp(RN(score_j - m)). Returns whether a score that counts is not finite, or may
 * have been before the soft cap hid it: then the caller looks at the inputs. */
enum { FINE = 0, SUSPECT = 1, BAD = 2 };
static int exponentials(const problem *p, const scalars *c, const span *s, float *x) {
    const int64_t n = s->hi - s->lo;
    const float scale = c->scale, cap = c->softcap;
    int state = FINE;
    if (n == 0) return state;
    round_row(x, n, (int)p->out_type);
    for (int64_t j = 0; j < n; ++j) x[j] *= scale;
    round_row(x, n, (int)p->out_type);
    if (p->has_softcap) {
        if (any_infinite(x, n)) state = SUSPECT;
        for (int64_t j = 0; j < n; ++j) x[j] /= cap;
        round_row(x, n, (int)p->out_type);
        rk_tanh_array(x, x, n);
        round_row(x, n, (int)p->out_type);
        for (int64_t j = 0; j < n; ++j) x[j] *= cap;
        round_row(x, n, (int)p->out_type);
    }
    if (s->mask) {
        for (int64_t j = 0; j < n; ++j) {
            const int open = allowed(p, s, s->lo + j);
            if (open && not_finite(x[j])) state = BAD;
            if (!open) x[j] = -RK_INFINITY; /* exp gives the +0 that a masked entry has */
        }
    } else if (any_infinite(x, n)) {
        state = BAD;
    }
    const float m = maximum(x, n);
    for (int64_t j = 0; j < n; ++j) x[j] -= m;
    rk_exp_array(x, x, n);
    return state;
}

/* ---- one tile ---- */

typedef struct {
    float *scores, *packed, *q, *out;
} scratch;

/* Rows of a tile in scratch: long rows are set off, or all of them would meet in one set of the cache. */
static inline int64_t row_stride(int64_t n) { return rk_stride(n) + (rk_segments(n) >= RK_CHAINS ? 16 : 0); }

/* y[k][m] = RN_a(e[m][k] / s[m]) for keys 0 .. n. */
static void divide(const problem *p, int rows, int64_t n, const float *e, int64_t stride, const float *sums, float *y) {
    for (int64_t k = 0; k < n; k += RK_VL) {
        float block[TILE_ROWS][RK_VL];
        rk_vu r[RK_VL];
        for (int m = 0; m < rows; ++m) rk_vstore(block[m], rk_vload(e + m * stride + k) / rk_vset(sums[m]));
        if (p->out_type != RK_F32) round_row(&block[0][0], rows * RK_VL, (int)p->out_type);
        for (int m = 0; m < RK_VL; ++m) r[m] = m < rows ? rk_loadu(block[m]) : (rk_vu){0};
        rk_transpose(r);
        for (int m = 0; m < RK_VL; ++m) rk_storeu(y + (k + m) * RK_VL, r[m]);
    }
}

/* One row of y . v over the attended keys alone: what is left when a value that this row must not read is not finite. */
static void careful(const problem *p, const span *s, int64_t b, int64_t g, int64_t base, const float *y, float *out) {
    for (int64_t d = 0; d < p->Dv; ++d) {
        float acc = 0.0f;
        for (int64_t j = s->lo; j < s->hi;) {
            float part = 0.0f;
            for (const int64_t segment = j / RK_SEGMENT; j < s->hi && j / RK_SEGMENT == segment; ++j)
                if (allowed(p, s, j)) part = rk_fmaf(y[(j - base) * RK_VL], rk_load(value(p, b, g, j), (int)p->v_type, d), part);
            acc += part;
        }
        out[d] = acc;
    }
}

/* Value columns in whole vectors. */
static inline int64_t value_width(const problem *p) { return (p->Dv + RK_VL - 1) / RK_VL * RK_VL; }

/* Rows r0 .. r0 + rows (row = query * group + head of the group) of key head g; keys and values are packed from
 * position keys->lo on, or values stand in the caller's memory. */
static void attend(const problem *p, const scalars *c, int64_t b, int64_t g, int64_t r0, int rows, const packed_head *in, scratch *t,
                   finding *first) {
    const int64_t group = p->H / p->Hkv;
    span spans[TILE_ROWS];
    int64_t lo = INT64_MAX, hi = 0;
    for (int m = 0; m < rows; ++m) {
        spans[m] = span_of(p, b, g * group + (r0 + m) % group, (r0 + m) / group);
        if (spans[m].hi == 0) continue;
        if (spans[m].lo < lo) lo = spans[m].lo;
        if (spans[m].hi > hi) hi = spans[m].hi;
    }
    if (lo > hi) lo = hi;
    const int64_t base = lo / RK_SEGMENT * RK_SEGMENT, n = hi - base, stride = row_stride(n);
    for (int m = 0; m < rows; ++m) {
        const void *from = query(p, b, g * group + (r0 + m) % group, (r0 + m) / group);
        for (int64_t d = 0; d < p->D; d += RK_SEGMENT) {
            float wide[RK_SEGMENT], *to = t->q + d * RK_VL + m;
            const int64_t count = rk_min64(RK_SEGMENT, p->D - d);
            rk_row_load(wide, element(from, p->q_type, d), (int)p->q_type, count);
            for (int64_t i = 0; i < count; ++i) to[i * RK_VL] = wide[i];
        }
    }
    if (n > 0) {
        const int64_t panel = lo / RK_NR, count = (hi + RK_NR - 1) / RK_NR - panel;
        product(rows, count * RK_NV, 0, p->D, t->q, in->keys + (panel - in->first_panel) * p->D * RK_NR, RK_NR,
                p->D * RK_NR, t->scores + panel * RK_NR - base, stride);
    }
    float sums[TILE_ROWS];
    for (int m = 0; m < rows; ++m) {
        const span *s = &spans[m];
        float *row = t->scores + m * stride;
        const int state = s->hi ? exponentials(p, c, s, row + s->lo - base) : FINE;
        if (state != FINE)
            report(first, diagnose(p, b, g * group + (r0 + m) % group, (r0 + m) / group, s, state == BAD));
        const int64_t from = s->hi ? s->lo - base : 0, to = s->hi ? s->hi - base : 0;
        memset(row, 0, (size_t)from * 4);
        memset(row + to, 0, (size_t)(rk_stride(n) - to) * 4);
    }
    const int64_t together = rk_group(rows, n);
    for (int64_t m = 0; m < rows; m += together)
        rk_sums(t->scores + m * stride, rk_min64(together, rows - m), n, sums + m);
    for (int m = 0; m < rows; ++m)
        if (spans[m].hi == 0) sums[m] = 1.0f; /* 0 / 1: nothing to attend to gives +0 */
    divide(p, rows, n, t->scores, stride, sums, t->packed);
    const int64_t width = value_width(p);
    product(rows, width / RK_VL, lo - base, n, t->packed, in->values + (base - in->first_value) * in->value_stride,
            in->value_stride, RK_NR, t->out, width);
    for (int m = 0; m < rows; ++m) {
        const int64_t h = g * group + (r0 + m) % group, i = (r0 + m) / group;
        float *row = t->out + m * width;
        if (any_infinite(row, p->Dv)) {
            report(first, diagnose(p, b, h, i, &spans[m], 0));
            careful(p, &spans[m], b, g, base, t->packed + m, row);
        }
        const int64_t at = b * p->out_stride[0] + h * p->out_stride[1] + i * p->out_stride[2];
        rk_row_store((char *)p->out + at * rk_itemsize((int)p->out_type), (int)p->out_type, row, p->Dv);
    }
}

/* ---- all tiles ---- */

/* Keys that some query of batch entry b may attend to. */
static span attended(const problem *p, int64_t b) {
    span all = {p->Sk, 0, NULL};
    for (int64_t i = 0; i < p->Sq; ++i) {
        const span s = span_of(p, b, -1, i);
        if (s.hi == 0) continue;
        if (s.lo < all.lo) all.lo = s.lo;
        if (s.hi > all.hi) all.hi = s.hi;
    }
    if (all.hi == 0) all.lo = 0;
    return all;
}

static float *allocate(int64_t floats) { return aligned_alloc(64, (size_t)((floats + 16) / 16 * 64)); }

static int allocate_scratch(const problem *p, scratch *t) {
    const int64_t n = rk_stride(p->Sk) + RK_SEGMENT;
    t->q = allocate((p->D + n) * RK_VL + TILE_ROWS * (n + 16 + value_width(p)));
    if (!t->q) return 0;
    t->packed = t->q + p->D * RK_VL;
    t->scores = t->packed + n * RK_VL;
    t->out = t->scores + TILE_ROWS * (n + 16);
    return 1;
}

/* found: kind and place of the first non-finite value, kind 0 if there is none. Returns 0, or -1 without memory. */
RK_EXPORT int RK_NAME(attention)(const problem *p, float scale, float softcap, finding *found) {
    const scalars c = {scale, softcap};
    const int64_t heads = p->B * p->Hkv, group = p->H / p->Hkv, rows = p->Sq * group;
    const int64_t tiles_per_head = (rows + TILE_ROWS - 1) / TILE_ROWS, tile_rows = (rows + tiles_per_head - 1) / tiles_per_head;
    const int direct = p->v_type == RK_F32 && p->Dv % RK_VL == 0;
    int64_t panels = 0, longest = 0;
    span *reach = malloc((size_t)p->B * sizeof(span));
    if (!reach) return -1;
    for (int64_t b = 0; b < p->B; ++b) {
        reach[b] = attended(p, b);
        const int64_t count = (reach[b].hi + RK_NR - 1) / RK_NR - reach[b].lo / RK_NR;
        if (count > panels) panels = count;
        if (reach[b].hi > longest) longest = reach[b].hi;
    }
    const int64_t key_floats = panels * p->D * RK_NR, value_floats = direct ? 0 : panels * RK_NR * value_width(p);
    int64_t together = MAX_SCRATCH / (key_floats + value_floats + 1);
    together = together < 1 ? 1 : together > heads ? heads : together;
    float *keys = allocate(together * (key_floats + value_floats)), *values = keys + together * key_floats;
    int failed = !keys;
    found->kind = NOTHING;
#pragma omp parallel if (heads * rows * longest * p->D > MIN_PARALLEL) reduction(| : failed)
    {
        RK_FP_ENTER;
        scratch t = {0};
        failed |= !allocate_scratch(p, &t);
        for (int64_t start = 0; start < heads; start += together) {
            const int64_t count = heads - start < together ? heads - start : together;
#pragma omp for schedule(static)
            for (int64_t u = 0; u < count * panels; ++u) {
                const int64_t head = start + u / panels, b = head / p->Hkv, g = head % p->Hkv, at = u % panels;
                const int64_t j0 = (reach[b].lo / RK_NR + at) * RK_NR, end = reach[b].hi;
                if (!keys || j0 >= end) continue;
                pack_keys_any(keys + (u / panels) * key_floats + at * p->D * RK_NR, p, b, g, j0, end);
                if (!direct)
                    pack_values(values + (u / panels) * value_floats + at * RK_NR * value_width(p), p, b, g, j0,
                                rk_min64(end, j0 + RK_NR), value_width(p));
            }
#pragma omp for schedule(dynamic, 1)
            for (int64_t u = 0; u < count * tiles_per_head; ++u) {
                /* the last queries of a causal mask have the most to do: they go first */
                const int64_t head = u % count, b = (start + head) / p->Hkv, g = (start + head) % p->Hkv;
                const int64_t r0 = (tiles_per_head - 1 - u / count) * tile_rows;
                if (!keys || !t.q || r0 >= rows) continue;
                const int64_t first_panel = reach[b].lo / RK_NR;
                const packed_head in = {
                    .keys = keys + head * key_floats,
                    .values = direct ? value(p, b, g, 0) : values + head * value_floats,
                    .first_panel = first_panel,
                    .first_value = direct ? 0 : first_panel * RK_NR,
                    .value_stride = direct ? p->v_stride[2] : value_width(p),
                };
                attend(p, &c, b, g, r0, (int)rk_min64(tile_rows, rows - r0), &in, &t, found);
            }
        }
        free(t.q);
        RK_FP_LEAVE;
    }
    free(keys);
    free(reach);
    return failed ? -1 : 0;
}
