/* What a forward or backward pass on a CPU does between its large products, in as few passes over memory as there can
 * be: the low-rank terms of a population, attention, norms, rotations and gates; and products of eight bits.
 *
 * The first two are sums over a few rows at a time, too small for a BLAS and, looped over from Python, mostly
 * calls. Two building blocks serve both. `dots`: rows against rows, x wᵀ (x Aᵀ; queries against keys). `mixes`:
 * sums of rows, y += s w (what A made of x, times B; weights times values). Matrices are float32 and
 * row-major; a stride is the distance of two rows in elements. Vectors are GCC's, eight wide, which it and
 * clang turn into what the machine has.
 *
 * Sizes come from files of strangers. So every function is told how much there is behind its pointers, checks once
 * that all it is given fits together, and returns a `status`.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE "?"
#endif

enum status { FINE, NO_MEMORY, MISFIT };

/* More than any host has, and little enough for a stack. */
enum { MAX_HEADS = 4096, MAX_HEAD_DIM = 4096, MAX_RANK = 65536 };

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif

typedef float v8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t i8 __attribute__((vector_size(32)));

INLINE v8 load(const float *from) { v8 x; memcpy(&x, from, sizeof x); return x; }
INLINE void store(float *to, v8 x) { memcpy(to, &x, sizeof x); }
INLINE v8 choose(i8 which, v8 a, v8 b) { return (v8)((which & (i8)a) | (~which & (i8)b)); }
INLINE v8 splat(float x) { return (v8){x, x, x, x, x, x, x, x}; }

/* True if this many rows, `stride` apart, have `width` numbers each of their own. */
INLINE int are_rows(int64_t rows, int64_t width, int64_t stride)
{
    return rows >= 0 && width > 0 && (rows < 2 || stride >= width);
}

/* True if query heads share key heads evenly, and a head has halves to rotate. */
INLINE int are_heads(int64_t heads, int64_t kv_heads, int64_t dim)
{
    return kv_heads > 0 && heads >= kv_heads && heads <= MAX_HEADS && heads % kv_heads == 0 && dim > 0 &&
           dim <= MAX_HEAD_DIM && dim % 2 == 0;
}

/* True if all numbers are in [0, end). */
INLINE int are_below(const int64_t *numbers, int64_t count, int64_t end)
{
    int fit = count >= 0;
    for (int64_t k = 0; k < count; k++) fit &= numbers[k] >= 0 && numbers[k] < end;
    return fit;
}

/* True if `count` from `start` on are among `all`. */
INLINE int are_within(int64_t start, int64_t count, int64_t all)
{
    return start >= 0 && count >= 0 && start <= all && count <= all - start;
}

INLINE v4 halves(v8 x)
{
    v4 two[2];
    memcpy(two, &x, sizeof x);
    return two[0] + two[1];
}

/* Asks for what comes next while there is something else to do: the hardware foresees nothing across pages. */
INLINE void fetch(const void *from, int64_t bytes)
{
    for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)from + k, 0, 1);
}

/* Sums of four vectors' lanes. */
INLINE v4 sums(v8 a, v8 b, v8 c, v8 d)
{
    v8 ab = SHUFFLE(i8, a, b, 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLE(i8, a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    v8 cd = SHUFFLE(i8, c, d, 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLE(i8, c, d, 1, 9, 3, 11, 5, 13, 7, 15);
    v8 all = SHUFFLE(i8, ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE(i8, ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
    return halves(all);
}

INLINE float sum(v8 a)
{
    v4 s = halves(a);
    return s[0] + s[1] + s[2] + s[3];
}

/* `dots` of R rows of x and C rows of w. */
INLINE void dots_tile(const int R, const int C, const float *x, int64_t xs, const float *w, int64_t ws, int64_t depth,
                      float scale, float *out, int64_t os)
{
    v8 acc[2][4];
    for (int i = 0; i < R; i++)
        for (int j = 0; j < C; j++) acc[i][j] = splat(0);
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        v8 row[4];
        for (int j = 0; j < C; j++) row[j] = load(w + j * ws + k);
        for (int i = 0; i < R; i++) {
            v8 here = load(x + i * xs + k);
            for (int j = 0; j < C; j++) acc[i][j] += here * row[j];
        }
    }
    for (int i = 0; i < R; i++) {
        float found[4];
        if (C == 4) {
            v4 four = sums(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
            memcpy(found, &four, sizeof four);
        } else {
            found[0] = sum(acc[i][0]);
        }
        for (int j = 0; j < C; j++) {
            for (int64_t rest = k; rest < depth; rest++) found[j] += x[i * xs + rest] * w[j * ws + rest];
            out[i * os + j] = found[j] * scale;
        }
    }
}

/* out[i, j] = scale · x[i] · w[j] over `depth` numbers. */
INLINE void dots(const float *x, int64_t xs, int64_t rows, const float *w, int64_t ws, int64_t count, int64_t depth,
                 float scale, float *out, int64_t os)
{
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) {
        int64_t i = 0;
        for (; i + 2 <= rows; i += 2)
            dots_tile(2, 4, x + i * xs, xs, w + j * ws, ws, depth, scale, out + i * os + j, os);
        if (i < rows) dots_tile(1, 4, x + i * xs, xs, w + j * ws, ws, depth, scale, out + i * os + j, os);
    }
    for (; j < count; j++)
        for (int64_t i = 0; i < rows; i++)
            dots_tile(1, 1, x + i * xs, xs, w + j * ws, ws, depth, scale, out + i * os + j, os);
}

/* `mixes` of R rows and 8 · W columns. */
INLINE void mixes_tile(const int R, const int W, const float *s, int64_t ss, const float *w, int64_t ws, int64_t depth,
                       float *y, int64_t ys)
{
    v8 acc[8][8];
    for (int i = 0; i < R; i++)
        for (int c = 0; c < W; c++) acc[i][c] = load(y + i * ys + 8 * c);
    for (int64_t j = 0; j < depth; j++) {
        v8 row[8];
        for (int c = 0; c < W; c++) row[c] = load(w + j * ws + 8 * c);
        for (int i = 0; i < R; i++) {
            v8 factor = splat(s[i * ss + j]);
            for (int c = 0; c < W; c++) acc[i][c] += factor * row[c];
        }
    }
    for (int i = 0; i < R; i++)
        for (int c = 0; c < W; c++) store(y + i * ys + 8 * c, acc[i][c]);
}

/* `mixes` of R rows, in columns of 8 · W and then of 16; `wide` is a multiple of 16. */
INLINE void mixes_band(const int R, const int W, const float *s, int64_t ss, const float *w, int64_t ws, int64_t depth,
                       float *y, int64_t ys, int64_t wide)
{
    int64_t c = 0;
    for (; c + 8 * W <= wide; c += 8 * W) mixes_tile(R, W, s, ss, w + c, ws, depth, y + c, ys);
    for (; c < wide; c += 16) mixes_tile(R, 2, s, ss, w + c, ws, depth, y + c, ys);
}

/* y[i] += Σ_j s[i, j] · w[j], `width` numbers wide, over `depth` rows of w: tiles as large as there are registers. */
INLINE void mixes(const float *s, int64_t ss, int64_t rows, const float *w, int64_t ws, int64_t depth, float *y, int64_t ys,
                  int64_t width)
{
    const int64_t wide = width / 16 * 16, whole = width / 8 * 8;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) mixes_band(4, 2, s + i * ss, ss, w, ws, depth, y + i * ys, ys, wide);
    for (; i + 2 <= rows; i += 2) mixes_band(2, 4, s + i * ss, ss, w, ws, depth, y + i * ys, ys, wide);
    if (i < rows) mixes_band(1, 8, s + i * ss, ss, w, ws, depth, y + i * ys, ys, wide);
    for (i = 0; wide < whole && i + 8 <= rows; i += 8)
        mixes_tile(8, 1, s + i * ss, ss, w + wide, ws, depth, y + i * ys + wide, ys);
    for (; wide < whole && i < rows; i++)
        mixes_tile(1, 1, s + i * ss, ss, w + wide, ws, depth, y + i * ys + wide, ys);
    for (i = 0; whole < width && i < rows; i++)
        for (int64_t j = 0; j < depth; j++)
            for (int64_t c = whole; c < width; c++) y[i * ys + c] += s[i * ss + j] * w[j * ws + c];
}

/* eˣ for x ≤ 0, to about 1e-7 of it: 2ⁿ times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes). */
INLINE v8 exponential(v8 x)
{
    x = choose(x < -87.0f, splat(-87.0f), x);
    const v8 magic = splat(12582912.0f); /* 1.5 · 2²³: adding it rounds to an integer in the low bits */
    v8 shifted = x * 1.44269504f + magic, n = shifted - magic;
    v8 r = x - n * 0.693359375f + n * 2.12194440e-4f;
    v8 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    i8 power = ((i8)shifted - (i8)magic) << 23;
    return (v8)((i8)p + power);
}

/* Turns scores into e to the score less the largest, in place, and returns their sum. Room for whole vectors. */
INLINE float weigh(float *scores, int64_t count)
{
    for (int64_t j = count; j % 8; j++) scores[j] = -INFINITY;
    v8 tops = splat(-INFINITY), totals = splat(0);
    for (int64_t j = 0; j < count; j += 8) {
        const v8 here = load(scores + j);
        tops = choose(here > tops, here, tops);
    }
    float top = tops[0];
    for (int k = 1; k < 8; k++) top = tops[k] > top ? tops[k] : top;
    for (int64_t j = 0; j < count; j += 8) {
        const v8 one = exponential(load(scores + j) - top); /* of what was -∞ it is 1e-38 */
        store(scores + j, one);
        totals += one;
    }
    return sum(totals);
}

/* So many numbers, rounded up to whole vectors. */
INLINE int64_t padded(int64_t count)
{
    return (count + 7) / 8 * 8;
}

/* scale · Aᵀ of all members side by side, (d_in, width), where width is at least members · rank. */
INLINE void pack(const int64_t *a, int64_t owners, int64_t members, int64_t rank, int64_t d_in, float scale, float *packed,
                 int64_t width)
{
    memset(packed, 0, sizeof(float) * d_in * width);
    for (int64_t m = 0; m < members; m++)
        for (int64_t j = 0; j < rank; j++)
            for (int64_t k = 0; k < d_in; k++)
                packed[k * width + m * rank + j] = scale * ((const float *)a[m * owners])[j * d_in + k];
}

INLINE v8 gated(v8 g, v8 up)
{
    const v8 e = exponential((v8)((i8)g | INT32_MIN)); /* of -|g| */
    return g * up * choose(g < 0.0f, e, splat(1)) / (e + 1.0f);
}

/* `swiglu` of one row. */
INLINE void swiglu_row(const float *x, int64_t width, float *out)
{
    const float *up = x + width;
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) store(out + k, gated(load(x + k), load(up + k)));
    for (; k < width; k++) out[k] = gated(splat(x[k]), splat(up[k]))[0];
}

/* y += scale · (x Aᵀ) B for one owner after the other, at each one's own rank.
 *
 * x (tokens, d_in) and y (tokens, d_out) have `counts[o]` tokens of owner o. a and b are addresses of
 * (rank, d_in) and (rank, width) matrices, [member][owner]; a member's part of y is `widths[m]` wide and starts
 * at column `columns[m]`. Rank 0 adds nothing. Unless `gate_to` is NULL, y is of two halves and `swiglu` of it goes
 * there, (tokens, half), while y is still near.
 */
int add_low_rank(int64_t tokens, const float *x, int64_t xs, int64_t d_in, float *y, int64_t ys, int64_t d_out,
                 int64_t members, const int64_t *columns, const int64_t *widths, int64_t owners, const int64_t *counts,
                 const int64_t *ranks, const float *scales, const int64_t *a, const int64_t *b, float *gate_to,
                 int64_t half, int64_t threads)
{
    int failures = 0, fit = are_rows(tokens, d_in, xs) && are_rows(tokens, d_out, ys) && members >= 0 && owners >= 0 &&
                            threads > 0 && (!gate_to || half == d_out / 2);
    enum { BATCH = 64, WORTH_PACKING = 24 };
    for (int64_t m = 0; fit && m < members; m++) fit = are_within(columns[m], widths[m], d_out);
    if (!fit) return MISFIT;
    int64_t *starts = malloc(sizeof(int64_t) * (owners + 1));
    if (!starts) return NO_MEMORY;
    starts[0] = 0;
    for (int64_t o = 0; fit && o < owners; o++) {
        fit = are_within(starts[o], counts[o], tokens) && ranks[o] >= 0;
        starts[o + 1] = starts[o] + (fit ? counts[o] : 0);
    }
    if (!fit || starts[owners] != tokens) {
        free(starts);
        return MISFIT;
    }
    #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t o = 0; o < owners; o++) {
        const int64_t rank = ranks[o], width = padded(members * rank);
        if (!counts[o] || (!rank && !gate_to)) continue;
        if (o + 1 < owners && counts[o] < WORTH_PACKING)
            for (int64_t m = 0; m < members; m++) {
                fetch((const float *)a[m * owners + o + 1], sizeof(float) * ranks[o + 1] * d_in);
                fetch((const float *)b[m * owners + o + 1], sizeof(float) * ranks[o + 1] * widths[m]);
            }
        /* Packed, Aᵀ is what `mixes` takes, which is twice as fast as `dots`. */
        const int is_packed = rank && counts[o] >= WORTH_PACKING;
        float *inner = malloc(sizeof(float) * (1 + width * (BATCH + is_packed * d_in))), *packed = inner + width * BATCH;
        if (!inner) {
            #pragma omp atomic
            failures++;
            continue;
        }
        if (is_packed) pack(a + o, owners, members, rank, d_in, scales[o], packed, width);
        for (int64_t token = starts[o]; token < starts[o + 1]; token += BATCH) {
            const int64_t left = starts[o + 1] - token, n = left < BATCH ? left : BATCH;
            if (is_packed) {
                memset(inner, 0, sizeof(float) * n * width);
                mixes(x + token * xs, xs, n, packed, width, d_in, inner, width, width);
            }
            for (int64_t m = 0; rank && m < members; m++) {
                const float *am = (const float *)a[m * owners + o], *bm = (const float *)b[m * owners + o];
                float *part = inner + m * rank;
                if (!is_packed) dots(x + token * xs, xs, n, am, d_in, rank, d_in, scales[o], part, width);
                mixes(part, width, n, bm, widths[m], rank, y + token * ys + columns[m], ys, widths[m]);
            }
            for (int64_t i = token; gate_to && i < token + n; i++) swiglu_row(y + i * ys, half, gate_to + i * half);
        }
        free(inner);
    }
    free(starts);
    return failures ? NO_MEMORY : FINE;
}

/* What brings a row to root mean square 1. */
INLINE float evening(const float *x, int64_t width, float eps)
{
    v8 squares = splat(0);
    float rest = 0;
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) squares += load(x + k) * load(x + k);
    for (; k < width; k++) rest += x[k] * x[k];
    return 1 / sqrtf((rest + sum(squares)) / width + eps);
}

/* out (rows, width): rows of root mean square 1, times as many weights. */
int normalize(int64_t rows, int64_t width, const float *x, int64_t xs, const float *weights, int64_t count, float eps,
              float *out, int64_t threads)
{
    if (!are_rows(rows, width, xs) || count != width || threads < 1) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const float even = evening(x + i * xs, width, eps);
        for (int64_t k = 0; k < width; k++) out[i * width + k] = x[i * xs + k] * even * weights[k];
    }
    return FINE;
}

/* out (rows, width) = silu(gate) · up, where x (rows, 2 · width) holds gate and up. */
int swiglu(int64_t rows, int64_t width, const float *x, int64_t xs, float *out, int64_t threads)
{
    if (!are_rows(rows, 2 * width, xs) || threads < 1) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) swiglu_row(x + i * xs, width, out + i * width);
    return FINE;
}

/* One head: normed to root mean square 1 (unless norm is NULL), rotated by its position. */
INLINE void rope_head(const float *restrict x, const float *restrict norm, float eps, const float *restrict cosines,
                      const float *restrict sines, int64_t dim, float *restrict out)
{
    const int64_t half = dim / 2;
    float low[half], high[half];
    memcpy(low, x, sizeof low);
    memcpy(high, x + half, sizeof high);
    if (norm) {
        const float even = evening(x, dim, eps);
        for (int64_t k = 0; k < half; k++) low[k] *= even * norm[k];
        for (int64_t k = 0; k < half; k++) high[k] *= even * norm[k + half];
    }
    for (int64_t k = 0; k < half; k++) out[k] = low[k] * cosines[k] + high[k] * sines[k];
    for (int64_t k = 0; k < half; k++) out[k + half] = high[k] * cosines[k + half] + low[k] * sines[k + half];
}

/* `rope_head` of the first heads of every token: x (tokens, …, dim) to out (tokens, heads, dim). norms are NULL or
 * `count`, (heads, dim). */
int rope(int64_t tokens, int64_t heads, int64_t dim, const float *x, int64_t xs, const float *norms, int64_t count,
         float eps, const float *cosines, const float *sines, int64_t places, const int64_t *positions, float *out,
         int64_t threads)
{
    if (!are_heads(heads, heads, dim) || !are_rows(tokens, heads * dim, xs) || (norms && count != heads * dim) ||
        !are_below(positions, tokens, places) || threads < 1)
        return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t h = 0; h < heads; h++)
            rope_head(x + i * xs + h * dim, norms ? norms + h * dim : NULL, eps, cosines + positions[i] * dim,
                      sines + positions[i] * dim, dim, out + (i * heads + h) * dim);
    return FINE;
}

/* The newest token of each row: its key and value go into the cache, then its queries look at what is there. Rows
 * in a line that share an entry are tokens of one prompt, in their order: one thread takes them one by one.
 *
 * qkv (rows, heads + 2 · kv_heads, dim) as the host's products left them; norms are NULL or `norm_count`,
 * (heads + kv_heads, dim); cosines and sines (places, dim), the first half of the sines negated. The caches are
 * (held, kv_heads, room, dim); row i has `lengths[i]` tokens in entry `entries[i]`. A window of 0 sees all.
 */
int decode_attention(int64_t rows, int64_t heads, int64_t kv_heads, int64_t dim, const float *qkv, int64_t qkv_stride,
                     const float *norms, int64_t norm_count, float eps, const float *cosines, const float *sines, int64_t places,
                     float *keys, float *values, int64_t held, int64_t room, const int64_t *entries, const int64_t *lengths,
                     int64_t window, float scale, float *out, int64_t threads)
{
    if (!are_heads(heads, kv_heads, dim) || !are_rows(rows, (heads + 2 * kv_heads) * dim, qkv_stride) ||
        (norms && norm_count != (heads + kv_heads) * dim) || !are_below(entries, rows, held) ||
        !are_below(lengths, rows, room < places ? room : places) || window < 0 || threads < 1)
        return MISFIT;
    int failures = 0;
    const int64_t groups = heads / kv_heads;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t begin = 0; begin < rows; begin++) {
        if (begin && entries[begin] == entries[begin - 1]) continue;
        for (int64_t i = begin; i < rows && entries[i] == entries[begin]; i++) {
            const int64_t end = lengths[i] + 1, first = window && end > window ? end - window : 0, count = end - first;
            const int64_t stride = (count + 7) / 8 * 8;
            const float *turns = cosines + lengths[i] * dim, *signs = sines + lengths[i] * dim;
            float *scores = malloc(sizeof(float) * groups * (stride + dim)), *queries = scores + groups * stride;
            if (!scores) {
                #pragma omp atomic
                failures++;
                continue;
            }
            for (int64_t h = 0; h < kv_heads; h++) {
                const float *row = qkv + i * qkv_stride;
                float *key = keys + ((entries[i] * kv_heads + h) * room) * dim;
                float *value = values + ((entries[i] * kv_heads + h) * room) * dim;
                const int64_t place = heads + h, next = h + 1 < kv_heads ? i : i + 1;
                if (next < rows) {
                    const int64_t there = (entries[next] * kv_heads + (h + 1) % kv_heads) * room * dim;
                    fetch(keys + there, sizeof(float) * lengths[next] * dim);
                    fetch(values + there, sizeof(float) * lengths[next] * dim);
                }
                rope_head(row + place * dim, norms ? norms + place * dim : NULL, eps, turns, signs, dim, key + lengths[i] * dim);
                memcpy(value + lengths[i] * dim, row + (place + kv_heads) * dim, sizeof(float) * dim);
                for (int64_t g = 0; g < groups; g++) {
                    const int64_t head = h * groups + g;
                    rope_head(row + head * dim, norms ? norms + head * dim : NULL, eps, turns, signs, dim, queries + g * dim);
                }
                dots(queries, dim, groups, key + first * dim, dim, count, dim, scale, scores, stride);
                float *seen = out + (i * heads + h * groups) * dim;
                memset(seen, 0, sizeof(float) * groups * dim);
                float shares[groups];
                for (int64_t g = 0; g < groups; g++) shares[g] = 1 / weigh(scores + g * stride, count);
                mixes(scores, stride, groups, value + first * dim, dim, count, seen, dim, dim);
                for (int64_t g = 0; g < groups; g++)
                    for (int64_t k = 0; k < dim; k++) seen[g * dim + k] *= shares[g];
            }
            free(scores);
        }
    }
    return failures ? NO_MEMORY : FINE;
}

/* A piece of a row's prompt: `count` tokens from `first` on, which stand on the line from `start` on. */
typedef struct { int64_t row, first, start, count; } piece;

/* Prompts' keys and values into the cache, piece after piece: (rows, kv_heads, room, dim) each.
 *
 * turned (tokens, heads + kv_heads, dim) and states (tokens, kv_heads, dim) are those of a line of tokens.
 */
int write_kv(int64_t pieces, const piece *all, int64_t heads, int64_t kv_heads, int64_t dim, int64_t tokens,
             const float *turned, int64_t ts, const float *states, int64_t ss, float *keys, float *values, int64_t rows,
             int64_t room, int64_t threads)
{
    int fit = are_heads(heads, kv_heads, dim) && are_rows(tokens, (heads + kv_heads) * dim, ts) &&
              are_rows(tokens, kv_heads * dim, ss) && pieces >= 0 && threads > 0;
    for (int64_t i = 0; fit && i < pieces; i++)
        fit = are_within(all[i].row, 1, rows) && are_within(all[i].first, all[i].count, room) &&
              are_within(all[i].start, all[i].count, tokens);
    if (!fit) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < pieces; i++)
        for (int64_t h = 0; h < kv_heads; h++)
            for (int64_t t = 0; t < all[i].count; t++) {
                const int64_t token = all[i].start + t, place = ((all[i].row * kv_heads + h) * room + all[i].first + t) * dim;
                memcpy(keys + place, turned + token * ts + (heads + h) * dim, sizeof(float) * dim);
                memcpy(values + place, states + token * ss + h * dim, sizeof(float) * dim);
            }
    return FINE;
}

/* Some tokens of a line: `count` from `start` on, behind `before` others that they see, the last of which are those
 * of stretch `parent` (-1: there are none). Those from number `first` on look around; what they see goes to the rows
 * of the output from `to` on. */
typedef struct { int64_t start, count, parent, before, first, to; } stretch;

/* True if stretches are of a line of so many tokens, stand behind their parents, and write to rows that there are. */
INLINE int are_stretches(const stretch *all, int64_t stretches, int64_t tokens, int64_t rows)
{
    int fit = stretches >= 0;
    for (int64_t n = 0; fit && n < stretches; n++) {
        const stretch s = all[n];
        fit = are_within(s.start, s.count, tokens) && are_within(s.first, 0, s.count) && s.parent >= -1 && s.parent < n &&
              s.before == (s.parent < 0 ? 0 : all[s.parent].before + all[s.parent].count) &&
              (s.first == s.count || are_within(s.to, s.count - s.first, rows));
    }
    return fit;
}

/* Those stretches that tokens of the last one see, and what of it is theirs, in the order of the text: `number` of
 * them in `path`, which has room for all. */
INLINE int64_t trace(const stretch *all, int64_t last, int64_t *path)
{
    int64_t number = 0;
    for (int64_t n = last; n >= 0; n = all[n].parent) number++;
    for (int64_t n = last, k = number; n >= 0; n = all[n].parent) path[--k] = n;
    return number;
}

/* scale · K of what a stretch sees as columns, (dim, width): `mixes` makes scores of them. */
INLINE void stand(const stretch *all, const int64_t *path, int64_t number, const float *keys, int64_t ts, int64_t dim,
                  float scale, float *columns, int64_t width)
{
    for (int64_t n = 0, j = 0; n < number; n++) {
        const stretch s = all[path[n]];
        for (int64_t t = 0; t < s.count; t++, j++) {
            const float *key = keys + (s.start + t) * ts;
            for (int64_t k = 0; k < dim; k++) columns[k * width + j] = scale * key[k];
        }
    }
}

/* Products of `count` rows with what is seen of a path, its tokens from number `least` up to `end`: (count, width),
 * scaled. `columns` are those tokens as `stand` makes them, scaled already; if it is NULL, they are read where they lie. */
INLINE void match(const stretch *all, const int64_t *path, int64_t number, int64_t least, int64_t end, const float *rows,
                  int64_t rs, int64_t count, const float *tokens, int64_t ts, int64_t dim, float scale,
                  const float *columns, float *products, int64_t width)
{
    if (columns) {
        memset(products, 0, sizeof(float) * count * width);
        mixes(rows, rs, count, columns + least, width, dim, products, width, (end - least + 7) / 8 * 8);
        return;
    }
    for (int64_t p = 0; p < number; p++) {
        const stretch past = all[path[p]];
        const int64_t low = past.before > least ? past.before : least;
        const int64_t high = past.before + past.count < end ? past.before + past.count : end;
        if (low < high)
            dots(rows, rs, count, tokens + (past.start + low - past.before) * ts, ts, high - low, dim, scale,
                 products + low - least, width);
    }
}

/* What the tokens of stretches see, (rows, heads, dim): all of what is before their stretch and, of their own,
 * themselves and what lies before. A stretch comes behind its parent. turned and states as in `write_kv`. A window of 0
 * sees all. */
int attention(int64_t stretches, const stretch *all, int64_t heads, int64_t kv_heads, int64_t dim, int64_t tokens,
              const float *turned, int64_t ts, const float *states, int64_t ss, int64_t window, float scale, float *out,
              int64_t rows, int64_t threads)
{
    if (!are_heads(heads, kv_heads, dim) || !are_rows(tokens, (heads + kv_heads) * dim, ts) ||
        !are_rows(tokens, kv_heads * dim, ss) || !are_stretches(all, stretches, tokens, rows) || window < 0 || threads < 1)
        return MISFIT;
    int failures = 0;
    enum { QUERIES = 8 };
    const int64_t groups = heads / kv_heads, os = heads * dim;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < stretches; n++) {
        const stretch s = all[n];
        if (s.first >= s.count) continue;
        const int64_t width = (s.before + s.count + 15) / 8 * 8;
        const int is_many = s.count - s.first >= QUERIES;
        float *scores = calloc(width * (QUERIES + is_many * dim), sizeof(float)), *columns = scores + QUERIES * width;
        int64_t *path = malloc(sizeof(int64_t) * (n + 1));
        if (!scores || !path) {
            #pragma omp atomic
            failures++;
            free(scores);
            free(path);
            continue;
        }
        const int64_t number = trace(all, n, path);
        for (int64_t head = 0; head < heads; head++) {
            const int64_t h = head / groups;
            const float *keys = turned + (heads + h) * dim, *values = states + h * dim;
            if (is_many && head % groups == 0) stand(all, path, number, keys, ts, dim, scale, columns, width);
            for (int64_t q = s.first; q < s.count; q += QUERIES) {
                const int64_t count = s.count - q < QUERIES ? s.count - q : QUERIES;
                /* Seen by any of these queries: what stands from `least` on, up to the last of them. */
                const int64_t position = s.before + q, least = window && position >= window ? position - window + 1 : 0;
                const int64_t end = position + count, seen = end - least;
                const float *queries = turned + (s.start + q) * ts + head * dim;
                match(all, path, number, least, end, queries, ts, count, keys, ts, dim, scale, is_many ? columns : NULL,
                      scores, width);
                float *to = out + (s.to + q - s.first) * os + head * dim, shares[QUERIES];
                for (int64_t i = 0; i < count; i++) {
                    float *mine = scores + i * width;
                    const int64_t visible = seen - count + i + 1;
                    for (int64_t k = 0; window && k < position + i - window + 1 - least; k++) mine[k] = -INFINITY;
                    shares[i] = 1 / weigh(mine, visible);
                    for (int64_t k = visible; k < seen; k++) mine[k] = 0;
                    memset(to + i * os, 0, sizeof(float) * dim);
                }
                for (int64_t p = 0; p < number; p++) {
                    const stretch past = all[path[p]];
                    const int64_t low = past.before > least ? past.before : least;
                    const int64_t high = past.before + past.count < end ? past.before + past.count : end;
                    if (low < high)
                        mixes(scores + low - least, width, count, values + (past.start + low - past.before) * ss, ss,
                              high - low, to, os, dim);
                }
                for (int64_t i = 0; i < count; i++)
                    for (int64_t k = 0; k < dim; k++) to[i * os + k] *= shares[i];
            }
        }
        free(scores);
        free(path);
    }
    return failures ? NO_MEMORY : FINE;
}

/* Backward passes. Each computes again what its forward pass did not keep: between the large products that costs next
 * to nothing.
 */

/* The gradient of a row before `normalize`, from that behind it. */
INLINE void even_back(const float *x, const float *weights, float eps, const float *dy, int64_t width, float *dx)
{
    const float even = evening(x, width, eps);
    v8 products = splat(0);
    float rest = 0;
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) products += load(x + k) * load(weights + k) * load(dy + k);
    for (; k < width; k++) rest += x[k] * weights[k] * dy[k];
    const float shift = even * (even * (even * (rest + sum(products)) / width));
    for (k = 0; k < width; k++) dx[k] = even * weights[k] * dy[k] - shift * x[k];
}

/* dx (rows, width) from dy (rows, width) of `normalize`. */
int normalize_back(int64_t rows, int64_t width, const float *x, int64_t xs, const float *weights, int64_t count, float eps,
                   const float *dy, int64_t dys, float *dx, int64_t threads)
{
    if (!are_rows(rows, width, xs) || !are_rows(rows, width, dys) || count != width || threads < 1) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) even_back(x + i * xs, weights, eps, dy + i * dys, width, dx + i * width);
    return FINE;
}

/* The gradients of eight gates and what they let through. */
INLINE void gated_back(v8 g, v8 up, v8 dy, v8 *dg, v8 *dup)
{
    const v8 e = exponential((v8)((i8)g | INT32_MIN)); /* of -|g| */
    const v8 open = choose(g < 0.0f, e, splat(1)) / (e + 1.0f);
    *dg = dy * up * open * (g * (1.0f - open) + 1.0f);
    *dup = dy * g * open;
}

/* dx (rows, 2 · width) from dy (rows, width) of `swiglu`. */
int swiglu_back(int64_t rows, int64_t width, const float *x, int64_t xs, const float *dy, int64_t dys, float *dx,
                int64_t threads)
{
    if (!are_rows(rows, 2 * width, xs) || !are_rows(rows, width, dys) || threads < 1) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const float *g = x + i * xs, *up = g + width, *d = dy + i * dys;
        float *dg = dx + i * 2 * width, *dup = dg + width;
        int64_t k = 0;
        v8 one, other;
        for (; k + 8 <= width; k += 8) {
            gated_back(load(g + k), load(up + k), load(d + k), &one, &other);
            store(dg + k, one), store(dup + k, other);
        }
        for (; k < width; k++) {
            gated_back(splat(g[k]), splat(up[k]), splat(d[k]), &one, &other);
            dg[k] = one[0], dup[k] = other[0];
        }
    }
    return FINE;
}

/* dx (tokens, …, dim) of the first heads of every token, from dy (tokens, heads, dim) of `rope`. */
int rope_back(int64_t tokens, int64_t heads, int64_t dim, const float *x, int64_t xs, const float *norms, int64_t count,
              float eps, const float *cosines, const float *sines, int64_t places, const int64_t *positions,
              const float *dy, float *dx, int64_t dxs, int64_t threads)
{
    if (!are_heads(heads, heads, dim) || !are_rows(tokens, heads * dim, xs) || !are_rows(tokens, heads * dim, dxs) ||
        (norms && count != heads * dim) || !are_below(positions, tokens, places) || threads < 1)
        return MISFIT;
    const int64_t half = dim / 2;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < tokens; i++) {
        const float *c = cosines + positions[i] * dim, *s = sines + positions[i] * dim;
        float back[dim];
        for (int64_t h = 0; h < heads; h++) {
            const float *low = dy + (i * heads + h) * dim, *high = low + half;
            float *to = dx + i * dxs + h * dim;
            for (int64_t k = 0; k < half; k++) back[k] = low[k] * c[k] + high[k] * s[k + half];
            for (int64_t k = 0; k < half; k++) back[k + half] = high[k] * c[k + half] + low[k] * s[k];
            if (norms) even_back(x + i * xs + h * dim, norms + h * dim, eps, back, dim, to);
            else memcpy(to, back, sizeof back);
        }
    }
    return FINE;
}

/* Stretches by the first one of their path: those of a tree follow each other by `next` (-1: none). Returns how many
 * trees there are; `roots` are their first stretches. All have room for every stretch. */
INLINE int64_t plant(const stretch *all, int64_t stretches, int64_t *root, int64_t *last, int64_t *next, int64_t *roots)
{
    int64_t trees = 0;
    for (int64_t n = 0; n < stretches; n++) {
        const int64_t r = root[n] = all[n].parent < 0 ? n : root[all[n].parent];
        if (r == n) roots[trees++] = n;
        else next[last[r]] = n;
        last[r] = n, next[n] = -1;
    }
    return trees;
}

/* `attention_back` for one stretch and one head of keys. `room` is for 4 · QUERIES rows of `width` numbers, of which all are
 * at least as wide as what is seen, and for 2 · dim more if there are many queries. */
enum { QUERIES_BACK = 8 };
INLINE void attention_back_at(const stretch *all, int64_t n, const int64_t *path, int64_t number, int64_t heads, int64_t groups,
                              int64_t h, int64_t dim, const float *turned, int64_t ts, const float *states, int64_t ss,
                              int64_t window, float scale, const float *dy, float *dturned, float *dstates, int64_t dss,
                              float *room, int64_t width, int is_many)
{
    const stretch s = all[n];
    const int64_t os = heads * dim;
    const float *keys = turned + (heads + h) * dim, *values = states + h * dim;
    float *dkeys = dturned + (heads + h) * dim, *dvalues = dstates + h * dim;
    float *weights = room, *slopes = weights + QUERIES_BACK * width, *turned_weights = slopes + QUERIES_BACK * width;
    float *turned_slopes = turned_weights + QUERIES_BACK * width, *columns = turned_slopes + QUERIES_BACK * width;
    float *value_columns = columns + dim * width;
    if (is_many) {
        stand(all, path, number, keys, ts, dim, scale, columns, width);
        stand(all, path, number, values, ss, dim, 1, value_columns, width);
    }
    for (int64_t head = h * groups; head < (h + 1) * groups; head++)
        for (int64_t q = s.first; q < s.count; q += QUERIES_BACK) {
            const int64_t count = s.count - q < QUERIES_BACK ? s.count - q : QUERIES_BACK;
            const int64_t position = s.before + q, least = window && position >= window ? position - window + 1 : 0;
            const int64_t end = position + count, seen = end - least, wide = (seen + 7) / 8 * 8;
            const float *queries = turned + (s.start + q) * ts + head * dim;
            const float *from = dy + (s.to + q - s.first) * os + head * dim;
            match(all, path, number, least, end, queries, ts, count, keys, ts, dim, scale, is_many ? columns : NULL, weights,
                  width);
            match(all, path, number, least, end, from, os, count, values, ss, dim, 1, is_many ? value_columns : NULL, slopes,
                  width);
            for (int64_t i = 0; i < count; i++) {
                float *mine = weights + i * width, *slope = slopes + i * width;
                const int64_t visible = seen - count + i + 1, nearest = window ? position + i - window + 1 - least : 0;
                for (int64_t k = 0; k < nearest; k++) mine[k] = -INFINITY;
                const float share = 1 / weigh(mine, visible);
                for (int64_t k = visible; k < wide; k++) mine[k] = slope[k] = 0;
                v8 means = splat(0);
                for (int64_t k = 0; k < wide; k += 8) {
                    store(mine + k, load(mine + k) * share);
                    means += load(mine + k) * load(slope + k);
                }
                const float mean = sum(means);
                for (int64_t k = 0; k < wide; k += 8)
                    store(slope + k, load(mine + k) * (load(slope + k) - mean) * scale);
                for (int64_t k = 0; k < seen; k++) {
                    turned_weights[k * QUERIES_BACK + i] = mine[k];
                    turned_slopes[k * QUERIES_BACK + i] = slope[k];
                }
            }
            float *dqueries = dturned + (s.start + q) * ts + head * dim;
            for (int64_t p = 0; p < number; p++) {
                const stretch past = all[path[p]];
                const int64_t low = past.before > least ? past.before : least;
                const int64_t high = past.before + past.count < end ? past.before + past.count : end;
                const int64_t place = past.start + low - past.before, first = (low - least) * QUERIES_BACK;
                if (low >= high) continue;
                mixes(slopes + low - least, width, count, keys + place * ts, ts, high - low, dqueries, ts, dim);
                mixes(turned_slopes + first, QUERIES_BACK, high - low, queries, ts, count, dkeys + place * ts, ts, dim);
                mixes(turned_weights + first, QUERIES_BACK, high - low, from, os, count, dvalues + place * dss, dss, dim);
            }
        }
}

/* dturned, as `turned` lies, and dstates (tokens, kv_heads, dim) from dy (rows, heads, dim) of `attention`. A tree's keys
 * belong to whoever looks at them, so one thread takes all of a tree, for one head of keys. */
int attention_back(int64_t stretches, const stretch *all, int64_t heads, int64_t kv_heads, int64_t dim, int64_t tokens,
                   const float *turned, int64_t ts, const float *states, int64_t ss, int64_t window, float scale,
                   const float *dy, int64_t rows, float *dturned, float *dstates, int64_t dss, int64_t threads)
{
    if (!are_heads(heads, kv_heads, dim) || !are_rows(tokens, (heads + kv_heads) * dim, ts) ||
        !are_rows(tokens, kv_heads * dim, ss) || !are_rows(tokens, kv_heads * dim, dss) ||
        !are_stretches(all, stretches, tokens, rows) || window < 0 || threads < 1)
        return MISFIT;
    int failures = 0;
    const int64_t groups = heads / kv_heads;
    int64_t *root = malloc(sizeof *root * (4 * stretches + 1)), *last = root + stretches, *next = last + stretches;
    int64_t *roots = next + stretches;
    if (!root) return NO_MEMORY;
    const int64_t trees = plant(all, stretches, root, last, next, roots);
    #pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t tree = 0; tree < trees; tree++)
        for (int64_t h = 0; h < kv_heads; h++) {
            int64_t longest = 0, most = 0;
            for (int64_t n = roots[tree]; n >= 0; n = next[n]) {
                const stretch s = all[n];
                longest = s.before + s.count > longest ? s.before + s.count : longest;
                most = s.count - s.first > most ? s.count - s.first : most;
                for (int64_t token = s.start; token < s.start + s.count; token++) {
                    memset(dturned + token * ts + h * groups * dim, 0, sizeof(float) * groups * dim);
                    memset(dturned + token * ts + (heads + h) * dim, 0, sizeof(float) * dim);
                    memset(dstates + token * dss + h * dim, 0, sizeof(float) * dim);
                }
            }
            const int64_t width = (longest + 15) / 8 * 8;
            float *room = calloc(width * (4 * QUERIES_BACK + (most >= QUERIES_BACK) * 2 * dim), sizeof *room);
            int64_t *path = malloc(sizeof *path * (stretches + 1));
            if (!room || !path) {
                #pragma omp atomic
                failures++;
            }
            for (int64_t n = roots[tree]; n >= 0 && room && path; n = next[n])
                if (all[n].first < all[n].count)
                    attention_back_at(all, n, path, trace(all, n, path), heads, groups, h, dim, turned, ts, states, ss, window,
                                      scale, dy, dturned, dstates, dss, room, width, all[n].count - all[n].first >= QUERIES_BACK);
            free(room);
            free(path);
        }
    free(root);
    return failures ? NO_MEMORY : FINE;
}

/* scale · rows (rows, width) as columns: (width, rows). */
INLINE void transpose(const float *x, int64_t xs, int64_t rows, int64_t width, float scale, float *out, int64_t os)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < width; k++) out[k * os + i] = scale * x[i * xs + k];
}

/* What `add_low_rank` gives back, from dy (tokens, d_out): to dx (tokens, d_in), and to the gradients of the factors, at
 * the addresses da and db, which lie as a and b do. All are added to.
 *
 * If dx is NULL, x is what A made of the tokens, (tokens, members · rank), and db alone is added to. */
int low_rank_back(int64_t tokens, const float *x, int64_t xs, int64_t d_in, const float *dy, int64_t dys, int64_t d_out,
                  int64_t members, const int64_t *columns, const int64_t *widths, int64_t owners, const int64_t *counts,
                  const int64_t *ranks, const float *scales, const int64_t *a, const int64_t *b, const int64_t *da,
                  const int64_t *db, float *dx, int64_t threads)
{
    enum { BATCH = 64, PART = 256, BLOCK = 256 };
    int64_t widest = 0;
    int fit = are_rows(tokens, d_in, xs) && are_rows(tokens, d_out, dys) && members >= 0 && owners >= 0 && threads > 0;
    for (int64_t m = 0; fit && m < members; m++) {
        fit = are_within(columns[m], widths[m], d_out);
        widest = widths[m] > widest ? widths[m] : widest;
    }
    if (!fit) return MISFIT;
    int64_t *starts = malloc(sizeof(int64_t) * (owners + 1));
    if (!starts) return NO_MEMORY;
    starts[0] = 0;
    for (int64_t o = 0; fit && o < owners; o++) {
        fit = are_within(starts[o], counts[o], tokens) && ranks[o] >= 0 && ranks[o] <= MAX_RANK &&
              (dx || d_in == members * ranks[o]);
        starts[o + 1] = starts[o] + (fit ? counts[o] : 0);
    }
    if (!fit || starts[owners] != tokens) {
        free(starts);
        return MISFIT;
    }
    /* First what A made of the tokens, (tokens, width), and the gradients of that, (tokens, steep), for some tokens of an
     * owner at a time. Then the gradients of factors are summed up, for some columns at a time. So a lone owner has all
     * threads. Of whole vectors are all members together in the first, and each one in the second. */
    int64_t width = 0, steep = 0, parts = 0, longest = d_in > widest ? d_in : widest, failures = 0, number = 0;
    for (int64_t o = 0; o < owners; o++) {
        width = padded(members * ranks[o]) > width ? padded(members * ranks[o]) : width;
        steep = members * padded(ranks[o]) > steep ? members * padded(ranks[o]) : steep;
        parts += (counts[o] + PART - 1) / PART;
    }
    float *inner = calloc(tokens * (width + steep) + 1, sizeof *inner), *slopes = inner + tokens * width;
    int64_t *owner_of = malloc(sizeof *owner_of * (2 * parts + 1)), *start_of = owner_of + parts;
    if (!inner || !owner_of) parts = longest = 0, failures = 1;
    for (int64_t o = 0; parts && o < owners; o++)
        for (int64_t token = starts[o]; token < starts[o + 1]; token += PART, number++)
            owner_of[number] = o, start_of[number] = token;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t o = owner_of[part], rank = ranks[o], token = start_of[part];
        const int64_t left = starts[o + 1] - token, n = left < PART ? left : PART;
        const int64_t own = padded(members * rank), each = padded(rank);
        if (!own || !dx) continue;
        /* Packed, factors are what `mixes` takes: Aᵀ of all members, B of each. */
        float *packed_a = malloc(sizeof *packed_a * (d_in * own + widest * each)), *packed_b = packed_a + d_in * own;
        if (!packed_a) {
            #pragma omp atomic
            failures++;
            continue;
        }
        memset(packed_b, 0, sizeof *packed_b * widest * each);
        pack(a + o, owners, members, rank, d_in, scales[o], packed_a, own);
        mixes(x + token * xs, xs, n, packed_a, own, d_in, inner + token * width, width, own);
        for (int64_t m = 0; m < members; m++) {
            float *slope = slopes + token * steep + m * each;
            transpose((const float *)b[m * owners + o], widths[m], rank, widths[m], scales[o], packed_b, each);
            mixes(dy + token * dys + columns[m], dys, n, packed_b, each, widths[m], slope, steep, each);
            mixes(slope, steep, n, (const float *)a[m * owners + o], d_in, rank, dx + token * d_in, d_in, d_in);
        }
        free(packed_a);
    }
    const int64_t blocks = (longest + BLOCK - 1) / BLOCK;
    #pragma omp parallel for collapse(4) schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t o = 0; o < owners; o++)
        for (int64_t m = 0; m < members; m++)
            for (int is_a = 0; is_a < 2; is_a++)
                for (int64_t block = 0; block < blocks; block++) {
                    const int64_t rank = ranks[o], first = block * BLOCK, all = is_a ? d_in : widths[m];
                    if (!counts[o] || !rank || first >= all || (is_a && !dx)) continue;
                    /* Of A: the gradients of what it made, times the tokens. Of B: what A made, times dy. */
                    const float *factor = is_a ? slopes + m * padded(rank) : (dx ? inner : x) + m * rank;
                    const float *rows = is_a ? x + first : dy + columns[m] + first;
                    const int64_t fs = is_a ? steep : dx ? width : xs, rs = is_a ? xs : dys, wide = all - first < BLOCK ? all - first : BLOCK;
                    float *sums = (float *)(is_a ? da : db)[m * owners + o] + first;
                    float *turned = malloc(sizeof *turned * rank * BATCH);
                    if (!turned) {
                        #pragma omp atomic
                        failures++;
                        continue;
                    }
                    for (int64_t token = starts[o]; token < starts[o + 1]; token += BATCH) {
                        const int64_t left = starts[o + 1] - token, n = left < BATCH ? left : BATCH;
                        transpose(factor + token * fs, fs, n, rank, dx ? 1 : scales[o], turned, BATCH);
                        mixes(turned, BATCH, rank, rows + token * rs, rs, n, sums, all, wide);
                    }
                    free(turned);
                }
    free(inner);
    free(owner_of);
    free(starts);
    return failures ? NO_MEMORY : FINE;
}

/* Rows and weights of eight bits are multiplied as 16 bits, in pairs of neighbours along the inputs. A tile is of
 * TILE rows and PANEL columns. Packed weights of GROUP columns, a line of the cache, serve BAND rows.
 */
typedef int16_t h16 __attribute__((vector_size(32)));
typedef int8_t b16 __attribute__((vector_size(16)));
enum { PANEL = 16, GROUP = 64, TILE = 6, BAND = 252 };

/* Sums of the products of eight pairs. */
INLINE i8 pairs(h16 a, h16 b)
{
#ifdef __AVX2__
    return (i8)__builtin_ia32_pmaddwd256(a, b);
#else
    i8 sums;
    for (int k = 0; k < 8; k++) sums[k] = a[2 * k] * b[2 * k] + a[2 * k + 1] * b[2 * k + 1];
    return sums;
#endif
}

/* What a row's numbers are rounded in, so that the largest becomes 127; NaN if one of them is not finite. */
INLINE float unit_of(const float *x, int64_t width)
{
    v8 tops = splat(0);
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) {
        const v8 size = (v8)((i8)load(x + k) & INT32_MAX);
        tops = choose((size > tops) | (size != size), size, tops);
    }
    float top = 0;
    for (int j = 0; j < 8; j++) top = tops[j] > top || tops[j] != tops[j] ? tops[j] : top;
    for (; k < width; k++) top = fabsf(x[k]) > top || x[k] != x[k] ? fabsf(x[k]) : top;
    if (!(top < INFINITY)) return NAN;
    return (top < 1e-12f ? 1e-12f : top) / 127;
}

/* A row in whole numbers of its unit, which is returned; zeros if that is NaN. */
INLINE float round_row(const float *x, int64_t width, int16_t *whole)
{
    const float unit = unit_of(x, width);
    if (unit != unit) memset(whole, 0, sizeof *whole * width);
    else for (int64_t k = 0; k < width; k++) whole[k] = rintf(x[k] / unit);
    return unit;
}

/* x (rows, width) in eight bits, `whole`, and the unit of each row, for products of integers that are made elsewhere. */
int round_rows(int64_t rows, int64_t width, const float *x, int64_t xs, int8_t *whole, float *units, int64_t threads)
{
    if (!are_rows(rows, width, xs) || threads < 1) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const float *restrict from = x + i * xs, unit = units[i] = unit_of(from, width);
        int8_t *restrict to = whole + i * width;
        if (unit != unit) memset(to, 0, width);
        else for (int64_t k = 0; k < width; k++) to[k] = (int8_t)(int32_t)rintf(from[k] / unit);
    }
    return FINE;
}

/* out (rows, width) = whole sums times the unit of the row, times the scale of the column. */
int scale_sums(int64_t rows, int64_t width, const int32_t *sums, const float *units, const float *scales, int64_t count,
               float *out, int64_t threads)
{
    if (!are_rows(rows, width, width) || count != width || threads < 1) return MISFIT;
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *restrict from = sums + i * width;
        const float unit = units[i];
        float *restrict to = out + i * width;
        for (int64_t k = 0; k < width; k++) to[k] = (float)from[k] * unit * scales[k];
    }
    return FINE;
}

INLINE h16 widen(const int8_t *from)
{
    b16 x;
    memcpy(&x, from, sizeof x);
    return __builtin_convertvector(x, h16);
}

/* Columns of weights as `pairs` takes them, in panels of 16, (panels, depth / 2, 16, 2); what is missing is 0. */
INLINE void pack_panels(const int8_t *weights, int64_t ws, int64_t depth, int64_t columns, int16_t *panels)
{
    const int64_t even_depth = depth + depth % 2;
    for (int64_t k = 0; k < depth; k += 2)
        for (int64_t c = 0; c < columns; c += PANEL) {
            const int8_t *even = weights + k * ws + c, *odd = even + ws;
            int8_t rows[2][PANEL] = {0};
            if (columns - c < PANEL || k + 1 == depth) {
                const int64_t left = columns - c < PANEL ? columns - c : PANEL;
                memcpy(rows[0], even, left);
                if (k + 1 < depth) memcpy(rows[1], odd, left);
                even = rows[0], odd = rows[1];
            }
            const h16 first = widen(even), second = widen(odd);
            const h16 both[2] = {SHUFFLE(h16, first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                                 SHUFFLE(h16, first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
            memcpy(panels + c * even_depth + k * PANEL, both, sizeof both);
        }
}

/* out (R, columns) = rows of whole numbers times a panel, times the unit of the row, times the scale of the column. */
INLINE void panel_tile(const int R, const int16_t *whole, int64_t depth, const float *units, const int16_t *panel,
                       const float *scales, float *out, int64_t os, int64_t columns)
{
    i8 acc[TILE][2] = {0};
    for (int64_t k = 0; k < depth; k += 2) {
        h16 left, right;
        memcpy(&left, panel + k * PANEL, sizeof left);
        memcpy(&right, panel + k * PANEL + PANEL, sizeof right);
        for (int i = 0; i < R; i++) {
            int32_t pair;
            memcpy(&pair, whole + i * depth + k, sizeof pair);
            const h16 here = (h16)((i8){0} + pair);
            acc[i][0] += pairs(here, left);
            acc[i][1] += pairs(here, right);
        }
    }
    for (int i = 0; i < R; i++) {
        float row[PANEL];
        for (int h = 0; h < 2; h++) store(row + 8 * h, __builtin_convertvector(acc[i][h], v8) * units[i]);
        for (int c = 0; c < columns; c++) out[i * os + c] = row[c] * scales[c];
    }
}

/* `panel_tile` of as many of the rows as fit; how many. */
INLINE int64_t panel_tiles(int64_t rows, const int16_t *whole, int64_t depth, const float *units, const int16_t *panel,
                           const float *scales, float *out, int64_t os, int64_t columns)
{
    if (rows >= TILE) return panel_tile(TILE, whole, depth, units, panel, scales, out, os, columns), TILE;
    if (rows >= 3) return panel_tile(3, whole, depth, units, panel, scales, out, os, columns), 3;
    return panel_tile(1, whole, depth, units, panel, scales, out, os, columns), 1;
}

/* out (rows, d_out) = x (rows, d_in) rounded to eight bits, a unit per row, times weights (d_in, d_out) of eight bits
 * with a scale per column. Sums are of integers, so they are exact in any order.
 */
int multiply_rounded(int64_t rows, int64_t d_in, const float *x, int64_t xs, const int8_t *weights, int64_t ws,
                     int64_t d_out, const float *scales, int64_t count, float *out, int64_t threads)
{
    enum { MAX_DEPTH = INT32_MAX / (127 * 127) };
    if (!are_rows(rows, d_in, xs) || !are_rows(d_in, d_out, ws) || d_in > MAX_DEPTH || count != d_out || threads < 1)
        return MISFIT;
    const int64_t depth = d_in + d_in % 2, groups = (d_out + GROUP - 1) / GROUP, bands = (rows + BAND - 1) / BAND;
    int16_t *whole = malloc(rows * (sizeof *whole * depth + sizeof(float)) + 1);
    float *units = (float *)(whole + rows * depth);
    int failures = 0;
    if (!whole) return NO_MEMORY;
    #pragma omp parallel num_threads(threads) if (threads > 1)
    {
        int16_t *panels = aligned_alloc(32, sizeof *panels * depth * GROUP);
        if (!panels) {
            #pragma omp atomic
            failures++;
        }
        #pragma omp for
        for (int64_t i = 0; i < rows; i++) {
            units[i] = round_row(x + i * xs, d_in, whole + i * depth);
            if (d_in < depth) whole[i * depth + d_in] = 0;
        }
        #pragma omp for collapse(2)
        for (int64_t band = 0; band < bands; band++)
            for (int64_t group = 0; group < groups; group++) {
                if (!panels) continue;
                const int64_t first = group * GROUP, columns = d_out - first < GROUP ? d_out - first : GROUP;
                const int64_t end = rows < (band + 1) * BAND ? rows : (band + 1) * BAND;
                pack_panels(weights + first, ws, d_in, columns, panels);
                for (int64_t i = band * BAND, n; i < end; i += n)
                    for (int64_t c = 0; c < columns; c += PANEL)
                        n = panel_tiles(end - i, whole + i * depth, depth, units + i, panels + c * depth, scales + first + c,
                                        out + i * d_out + first + c, d_out, columns - c < PANEL ? columns - c : PANEL);
            }
        free(panels);
    }
    free(whole);
    return failures ? NO_MEMORY : FINE;
}

/* The version of this file. */
const char *source(void) { return SOURCE; }
