/* BLAKE3 keyed_hash of many rows at once, written from the BLAKE3 paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn,
 * 2020; section numbers below are the paper's). Lanes run across the chunks of a row and across rows, whatever job they
 * belong to. NaNs are made canonical on the way from memory into the compression function, so no copy is needed.
 */
#include <omp.h>
#include <stdlib.h>

#include "common.h"
#include "lanes.h"

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8, KEYED_HASH = 16 }; /* table 3 */
enum { CHUNK = 1024, BLOCK = 64, FULL = CHUNK / BLOCK };

/* How to read a row: raw bytes, or a floating type whose NaNs become the positive quiet NaN without payload. */
enum { RAW = 0, F32 = 1, BF16 = 2, F16 = 3, F64 = 4, F8_E5M2 = 5, F8_E4M3FN = 6 };

static const uint32_t IV[4] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a}; /* table 1 */

/* One lane's work: a chunk, or two chaining values under a parent node (len 64). */
typedef struct {
    const uint8_t *data;
    const uint32_t *key;
    uint32_t *out; /* 8 words */
    uint64_t counter;
    uint32_t len, kind;
    uint32_t first, last; /* flags of the first and of the last block */
} task;

typedef struct {
    task tasks[RK_LANES];
    int count;
} pending;

/* One job of the caller, as int64 fields: rows in C order over (outer, inner), each row contiguous. */
typedef struct {
    int64_t data, outer, inner, outer_stride, inner_stride, row_bytes, kind, key, out;
} job;

typedef struct {
    uint32_t *cv; /* count * 8 words, reduced in place */
    int64_t count;
    const uint32_t *key;
    uint8_t *out;
    const uint8_t *data;
    const job *job;
} row;

static inline rk_vu splat(uint32_t x) { return (rk_vu){0} + x; }
static inline rk_vu rotr(rk_vu x, int n) { return (x >> n) | (x << (32 - n)); }
static inline rk_vu choose(rk_vu mask, rk_vu a, rk_vu b) { return (mask & a) | (~mask & b); }

#define G(a, b, c, d, x, y)                     \
    do {                                        \
        v[a] = v[a] + v[b] + (x);               \
        v[d] = rotr(v[d] ^ v[a], 16);           \
        v[c] = v[c] + v[d];                     \
        v[b] = rotr(v[b] ^ v[c], 12);           \
        v[a] = v[a] + v[b] + (y);               \
        v[d] = rotr(v[d] ^ v[a], 8);            \
        v[c] = v[c] + v[d];                     \
        v[b] = rotr(v[b] ^ v[c], 7);            \
    } while (0)

/* A round with its sixteen message words in order (section 2.2); the permutation of table 2 is applied by the callers. */
#define ROUND(i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15) \
    do {                                        \
        G(0, 4, 8, 12, m[i0], m[i1]);           \
        G(1, 5, 9, 13, m[i2], m[i3]);           \
        G(2, 6, 10, 14, m[i4], m[i5]);          \
        G(3, 7, 11, 15, m[i6], m[i7]);          \
        G(0, 5, 10, 15, m[i8], m[i9]);          \
        G(1, 6, 11, 12, m[i10], m[i11]);        \
        G(2, 7, 8, 13, m[i12], m[i13]);         \
        G(3, 4, 9, 14, m[i14], m[i15]);         \
    } while (0)

/* The first half of the compression function's output in every lane: h becomes the next chaining value. */
static inline void compress(rk_vu h[8], const rk_vu m[16], rk_vu low, rk_vu high, rk_vu length, rk_vu flags) {
    rk_vu v[16] = {h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
                   splat(IV[0]), splat(IV[1]), splat(IV[2]), splat(IV[3]), low, high, length, flags};
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8);
    ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1);
    ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6);
    ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4);
    ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7);
    ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13);
    for (int i = 0; i < 8; ++i) h[i] = v[i] ^ v[i + 8];
}

static inline void canonical(rk_vu m[16], uint32_t kind) {
    switch (kind) {
    case F32:
        for (int i = 0; i < 16; ++i) {
            const rk_vu nan = (rk_vu)((m[i] & 0x7fffffff) > 0x7f800000);
            m[i] = choose(nan, splat(0x7fc00000), m[i]);
        }
        break;
    case BF16:
    case F16: {
        const rk_v16 infinity = (rk_v16){0} + (uint16_t)(kind == BF16 ? 0x7f80 : 0x7c00);
        const rk_vu quiet = splat(kind == BF16 ? 0x7fc07fc0 : 0x7e007e00);
        for (int i = 0; i < 16; ++i) {
            const rk_vu nan = (rk_vu)(((rk_v16)m[i] & 0x7fff) > infinity);
            m[i] = choose(nan, quiet, m[i]);
        }
        break;
    }
    case F64:
        for (int i = 0; i < 16; i += 2) {
            const rk_vu magnitude = m[i + 1] & 0x7fffffff;
            const rk_vu nan = (rk_vu)(magnitude > 0x7ff00000) | ((rk_vu)(magnitude == 0x7ff00000) & (rk_vu)(m[i] != 0));
            m[i] = ~nan & m[i];
            m[i + 1] = choose(nan, splat(0x7ff80000), m[i + 1]);
        }
        break;
    case F8_E5M2:
    case F8_E4M3FN: {
        const rk_v8 largest = (rk_v8){0} + (uint8_t)(kind == F8_E5M2 ? 0x7c : 0x7e);
        const rk_vu quiet = splat(kind == F8_E5M2 ? 0x7e7e7e7e : 0x7f7f7f7f);
        for (int i = 0; i < 16; ++i) {
            const rk_vu nan = (rk_vu)(((rk_v8)m[i] & 0x7f) > largest);
            m[i] = choose(nan, quiet, m[i]);
        }
        break;
    }
    default:
        break;
    }
}

/* Words of RK_LANES blocks into message vectors: m[w] holds word w of every lane. */
static inline void gather(rk_vu m[16], const uint8_t *const data[RK_LANES]) {
    for (int g = 0; g < 16; g += RK_LANES) {
        for (int l = 0; l < RK_LANES; ++l) m[g + l] = rk_loadu(data[l] + 4 * g);
        rk_transpose(m + g);
    }
}

/* Chaining values of the lanes, 8 words each, to vectors h[word] and back. */
static inline void load_values(rk_vu h[8], const task *const lane[RK_LANES]) {
    int same = 1;
    for (int l = 1; l < RK_LANES; ++l) same &= lane[l]->key == lane[0]->key;
    if (same) {
        for (int i = 0; i < 8; ++i) h[i] = splat(lane[0]->key[i]);
        return;
    }
    uint32_t word[8][RK_LANES];
    for (int l = 0; l < RK_LANES; ++l)
        for (int i = 0; i < 8; ++i) word[i][l] = lane[l]->key[i];
    for (int i = 0; i < 8; ++i) h[i] = rk_loadu(word[i]);
}

static inline void store_values(const task *tasks, int count, rk_vu h[8]) {
#if RK_LANES >= 8
    RK_EXCHANGE(h, 8, 4);
    RK_EXCHANGE(h, 8, 2);
    RK_EXCHANGE(h, 8, 1);
    uint32_t word[8][RK_LANES]; /* row i: lane i, then lane i + 8 */
    for (int i = 0; i < 8; ++i) rk_storeu(word[i], h[i]);
    for (int l = 0; l < count; ++l) memcpy(tasks[l].out, word[l % 8] + l / 8 * 8, 32);
#else
    rk_transpose(h);
    rk_transpose(h + 4);
    for (int l = 0; l < count; ++l) {
        rk_storeu(tasks[l].out, h[l]);
        rk_storeu(tasks[l].out + 4, h[l + 4]);
    }
#endif
}

static inline int blocks(uint32_t len) { return len <= BLOCK ? 1 : (int)((len + BLOCK - 1) / BLOCK); }

static void flush(pending *p) {
    static const uint8_t zeros[BLOCK];
    if (p->count == 0) return;
    const int count = p->count;
    const uint32_t kind = p->tasks[0].kind;
    union { uint32_t word[RK_LANES]; rk_vu vector; } low, high, length, flags, active;
    uint8_t tails[RK_LANES][BLOCK];
    const uint8_t *data[RK_LANES];
    const task *lane[RK_LANES]; /* lanes past count repeat the first; their results are dropped */
    int most = 0, uniform = p->tasks[0].len % BLOCK == 0 && p->tasks[0].len != 0;

    for (int l = 0; l < RK_LANES; ++l) {
        const task *t = lane[l] = &p->tasks[l < count ? l : 0];
        const int n = blocks(t->len);
        if (n > most) most = n;
        uniform &= t->len == lane[0]->len && t->first == lane[0]->first && t->last == lane[0]->last;
        low.word[l] = (uint32_t)t->counter;
        high.word[l] = (uint32_t)(t->counter >> 32);
        data[l] = t->data;
    }

    rk_vu h[8], m[16];
    load_values(h, lane);
    for (int b = 0; uniform && b < most; ++b) {
        gather(m, data);
        canonical(m, kind);
        for (int l = 0; l < RK_LANES; ++l) {
            data[l] += BLOCK;
            __builtin_prefetch(data[l] + 3 * BLOCK);
        }
        const uint32_t f = KEYED_HASH | (b == 0 ? lane[0]->first : 0) | (b == most - 1 ? lane[0]->last : 0);
        compress(h, m, low.vector, high.vector, splat(BLOCK), splat(f));
    }
    for (int b = 0; !uniform && b < most; ++b) {
        for (int l = 0; l < RK_LANES; ++l) {
            const task *t = lane[l];
            const int n = blocks(t->len);
            const int64_t left = (int64_t)t->len - (int64_t)BLOCK * b;
            active.word[l] = b < n ? 0xffffffff : 0;
            length.word[l] = left >= BLOCK ? BLOCK : left > 0 ? (uint32_t)left : 0;
            flags.word[l] = KEYED_HASH | (b == 0 ? t->first : 0) | (b == n - 1 ? t->last : 0);
            data[l] = left > 0 ? t->data + BLOCK * b : zeros;
            if (left > 0 && left < BLOCK) {
                memcpy(tails[l], data[l], (size_t)left);
                memset(tails[l] + left, 0, (size_t)(BLOCK - left));
                data[l] = tails[l];
            }
        }
        rk_vu next[8];
        for (int i = 0; i < 8; ++i) next[i] = h[i];
        gather(m, data);
        canonical(m, kind);
        compress(next, m, low.vector, high.vector, length.vector, flags.vector);
        for (int i = 0; i < 8; ++i) h[i] = choose(active.vector, next[i], h[i]);
    }
    store_values(p->tasks, count, h);
    p->count = 0;
}

static inline void push(pending *p, task t) {
    if (p->count == RK_LANES || (p->count && p->tasks[0].kind != t.kind)) flush(p);
    p->tasks[p->count++] = t;
}

/* Chunk number c of a row (section 2.1); the only chunk of a row is its root. */
static inline void push_chunk(pending *p, const row *r, int64_t c) {
    const int64_t left = r->job->row_bytes - c * CHUNK;
    const int alone = r->count == 1;
    push(p, (task){.data = r->data + c * CHUNK, .key = r->key, .counter = (uint64_t)c,
                   .out = alone ? (uint32_t *)r->out : r->cv + 8 * c,
                   .len = (uint32_t)(left < CHUNK ? left : CHUNK), .kind = (uint32_t)r->job->kind,
                   .first = CHUNK_START, .last = CHUNK_END | (alone ? ROOT : 0)});
}

/* Hashes the rows: full chunks, last chunks, then the tree level by level. Adjacent nodes pair from the left and an odd
 * one is carried up, which is the tree of section 2.1 (left subtrees hold the largest power of two). */
static void hash_rows(row *rows, int64_t count) {
    pending p = {.count = 0};
    for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c + 1 < rows[i].count; ++c) push_chunk(&p, &rows[i], c);
    for (int64_t i = 0; i < count; ++i) push_chunk(&p, &rows[i], rows[i].count - 1);
    flush(&p);
    for (int more = 1; more;) {
        more = 0;
        for (int64_t i = 0; i < count; ++i) {
            row *r = &rows[i];
            const int64_t n = r->count;
            if (n == 1) continue;
            for (int64_t k = 0; k < n / 2; ++k)
                push(&p, (task){.data = (const uint8_t *)(r->cv + 16 * k), .key = r->key, .counter = 0,
                                .out = n == 2 ? (uint32_t *)r->out : r->cv + 8 * k, .len = BLOCK, .kind = RAW,
                                .first = PARENT, .last = n == 2 ? ROOT : 0});
            more |= n > 2;
        }
        flush(&p);
        for (int64_t i = 0; i < count; ++i) {
            row *r = &rows[i];
            const int64_t n = r->count;
            if (n % 2 && n > 1) memmove(r->cv + 8 * (n / 2), r->cv + 8 * (n - 1), 32);
            r->count = (n + 1) / 2;
        }
    }
}

static inline int64_t chunks(int64_t row_bytes) { return row_bytes <= CHUNK ? 1 : (row_bytes + CHUNK - 1) / CHUNK; }
static inline int64_t cost(const job *j) { return j->row_bytes + 128; }

/* The rows that start inside [from, to) of the running cost; returns 0, or -1 without memory. */
static int hash_unit(const job *jobs, int64_t njobs, int64_t from, int64_t to) {
    enum { SMALL_ROWS = 64, SMALL_CHUNKS = 256 };
    row small_rows[SMALL_ROWS];
    uint32_t small_cv[SMALL_CHUNKS * 8];
    int64_t nrows = 0, nchunks = 0;
    row *rows = small_rows;
    uint32_t *cv = small_cv;
    for (int fill = 0; fill < 2; ++fill) {
        if (fill && (nrows > SMALL_ROWS || nchunks > SMALL_CHUNKS)) {
            rows = malloc((size_t)nrows * sizeof(row) + (size_t)nchunks * 32);
            if (!rows) return -1;
            cv = (uint32_t *)(rows + nrows);
        }
        int64_t start = 0, filled = 0;
        uint32_t *next = cv;
        for (int64_t j = 0; j < njobs && start < to; ++j) {
            const job *b = &jobs[j];
            const int64_t total = b->outer * b->inner, c = cost(b), n = chunks(b->row_bytes);
            const int64_t first = from <= start ? 0 : (from - start + c - 1) / c;
            int64_t end = (to - start + c - 1) / c;
            if (end > total) end = total;
            if (!fill) {
                if (end > first) nrows += end - first, nchunks += (end - first) * n;
            } else {
                for (int64_t r = first; r < end; ++r) {
                    const int64_t outer = r / b->inner, inner = r % b->inner;
                    rows[filled++] = (row){
                        .cv = next, .count = n, .key = (const uint32_t *)(uintptr_t)b->key, .job = b,
                        .out = (uint8_t *)(uintptr_t)b->out + 32 * r,
                        .data = (const uint8_t *)(uintptr_t)b->data + outer * b->outer_stride + inner * b->inner_stride};
                    next += 8 * n;
                }
            }
            start += total * c;
        }
    }
    hash_rows(rows, nrows);
    if (rows != small_rows) free(rows);
    return 0;
}

/* Row digests of many jobs.
 * fields: njobs * 9 int64 (see job); keys and outputs are addresses (4-byte aligned), outputs hold 32 bytes per row.
 * Returns 0, or -1 without memory. */
RK_EXPORT int RK_NAME(row_digests)(const int64_t *fields, int64_t njobs) {
    enum { SMALLEST = 64 * 1024, LARGEST = 512 * 1024, UNITS_PER_THREAD = 4 };
    const job *jobs = (const job *)fields;
    int64_t total = 0;
    for (int64_t j = 0; j < njobs; ++j) total += jobs[j].outer * jobs[j].inner * cost(&jobs[j]);
    int64_t grain = total / ((int64_t)omp_get_max_threads() * UNITS_PER_THREAD);
    grain = grain < SMALLEST ? SMALLEST : grain > LARGEST ? LARGEST : grain;
    const int64_t units = (total + grain - 1) / grain;
    if (units <= 1) return hash_unit(jobs, njobs, 0, total);
    int failed = 0;
#pragma omp parallel for schedule(dynamic, 1) reduction(| : failed)
    for (int64_t u = 0; u < units; ++u)
        failed |= hash_unit(jobs, njobs, u * grain, u + 1 < units ? (u + 1) * grain : total) != 0;
    return failed ? -1 : 0;
}
