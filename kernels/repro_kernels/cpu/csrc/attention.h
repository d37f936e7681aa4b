/* The problem of attention.c: its tensors, what each query may attend to, and where a value is not finite. */
#ifndef RK_ATTENTION_H
#define RK_ATTENTION_H

#include "common.h"

/* As the caller lays it out, 8 bytes a field; strides in elements, the last axis of every tensor contiguous. */
typedef struct {
    const void *q, *k, *v; /* [B, H, Sq, D], [B, Hkv, Sk, D], [B, Hkv, Sk, Dv] */
    void *out;             /* [B, H, Sq, Dv] */
    const uint8_t *mask;   /* [B, H, Sq, Sk], nonzero = may attend, or NULL */
    const int64_t *q_positions, *k_length; /* [B, Sq] and [B], or NULL */
    int64_t B, H, Hkv, Sq, Sk, D, Dv;
    int64_t q_type, k_type, v_type, out_type;
    int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3], mask_stride[4];
    int64_t window; /* 0: none */
    int64_t has_softcap;
} problem;

typedef struct {
    int64_t kind, b, h, i, j; /* j = -1: not one key */
} finding;

enum { NOTHING = 0, IN_QUERY = 1, IN_KEY = 2, IN_VALUE = 3, IN_SCORE = 4 };

RK_INLINE const void *element(const void *x, int64_t type, int64_t index) {
    return (const char *)x + index * rk_itemsize((int)type);
}

RK_INLINE const void *query(const problem *p, int64_t b, int64_t h, int64_t i) {
    return element(p->q, p->q_type, b * p->q_stride[0] + h * p->q_stride[1] + i * p->q_stride[2]);
}

RK_INLINE const void *key(const problem *p, int64_t b, int64_t g, int64_t j) {
    return element(p->k, p->k_type, b * p->k_stride[0] + g * p->k_stride[1] + j * p->k_stride[2]);
}

RK_INLINE const void *value(const problem *p, int64_t b, int64_t g, int64_t j) {
    return element(p->v, p->v_type, b * p->v_stride[0] + g * p->v_stride[1] + j * p->v_stride[2]);
}

/* ---- what may attend: a range of keys per query, and the model's mask inside it ---- */

typedef struct {
    int64_t lo, hi;
    const uint8_t *mask; /* of key j at mask[j * step], or NULL */
} span;

static inline int allowed(const problem *p, const span *s, int64_t j) {
    return !s->mask || s->mask[j * p->mask_stride[3]];
}

/* h < 0: without the model's mask, for every head at once. */
static span span_of(const problem *p, int64_t b, int64_t h, int64_t i) {
    span s = {0, p->Sk, NULL};
    if (p->k_length && p->k_length[b] < s.hi) s.hi = p->k_length[b];
    if (p->q_positions) {
        const int64_t at = p->q_positions[b * p->Sq + i];
        if (at + 1 < s.hi) s.hi = at + 1;
        if (p->window > 0 && at - p->window + 1 > s.lo) s.lo = at - p->window + 1;
    }
    if (p->mask && h >= 0) {
        s.mask = p->mask + b * p->mask_stride[0] + h * p->mask_stride[1] + i * p->mask_stride[2];
        while (s.hi > s.lo && !allowed(p, &s, s.hi - 1)) --s.hi;
        while (s.hi > s.lo && !allowed(p, &s, s.lo)) ++s.lo;
    }
    if (s.hi <= s.lo) s.lo = s.hi = 0;
    return s;
}

/* ---- non-finite values ---- */

RK_INLINE int not_finite(float x) { return (rk_bits(x) & 0x7f800000u) == 0x7f800000u; }

static int finite_row(const void *x, int64_t dtype, int64_t n) {
    for (int64_t d = 0; d < n; ++d)
        if (not_finite(rk_load(x, (int)dtype, d))) return 0;
    return 1;
}

/* What the specification checks for one query, in its order: q, k, v, then the score. */
static finding diagnose(const problem *p, int64_t b, int64_t h, int64_t i, const span *s, int score) {
    const int64_t g = h / (p->H / p->Hkv);
    if (s->lo < s->hi && !finite_row(query(p, b, h, i), p->q_type, p->D)) return (finding){IN_QUERY, b, h, i, -1};
    for (int64_t j = s->lo; j < s->hi; ++j)
        if (allowed(p, s, j) && !finite_row(key(p, b, g, j), p->k_type, p->D)) return (finding){IN_KEY, b, h, i, j};
    for (int64_t j = s->lo; j < s->hi; ++j)
        if (allowed(p, s, j) && !finite_row(value(p, b, g, j), p->v_type, p->Dv)) return (finding){IN_VALUE, b, h, i, j};
    return (finding){score ? IN_SCORE : NOTHING, b, h, i, -1};
}

/* Keeps the first in (batch, head, query) order, so that threads do not show. */
static void report(finding *first, finding f) {
    if (f.kind == NOTHING) return;
#pragma omp critical(rk_attention_report)
    {
        const int64_t before = f.b != first->b ? f.b - first->b : f.h != first->h ? f.h - first->h : f.i - first->i;
        if (first->kind == NOTHING || before < 0) *first = f;
    }
}

#endif
