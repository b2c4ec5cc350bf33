/* Attention of one token to places of a pool, [places, KEY_HEADS, SIZE], that lie side by side, in
 * float32 whatever the pool's type. Compiled as numbers.h is.
 */

#include "numbers.h"

/* The vectors of a head. Of numbers in half a word the even ones come first, then the odd ones, 32
 * at a time: that is how they are taken out of words, and the order is nothing to a sum. */
static inline void load_head(const number *stored, lanes *vectors)
{
#ifdef BFLOAT16
#pragma GCC unroll 8
    for (int i = 0; i < VECTORS; i += 2) {
        integers words;
        memcpy(&words, stored + i * LANES, sizeof words);
        vectors[i] = (lanes)(words << 16);
        vectors[i + 1] = (lanes)(words & (int32_t)0xffff0000);
    }
#else
    memcpy(vectors, stored, SIZE * sizeof *stored);
#endif
}

/* Where the number at i is in those vectors. */
static inline int placed(int i)
{
#ifdef BFLOAT16
    return i / 32 * 32 + i % 2 * 16 + i % 32 / 2;
#else
    return i;
#endif
}

/* Of two vectors that hold partial sums of several things each, `width` * 2 lanes a thing: one that
 * holds those of both, `width` lanes a thing. */
#define HALVE(first, second, low, high)                                                            \
    (__builtin_shuffle(first, second, low) + __builtin_shuffle(first, second, high))

/* The sum of each of 16 vectors. */
static inline lanes sums_of(lanes *parts)
{
    const integers low8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
    const integers low4 = {0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27};
    const integers low2 = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
    const integers low1 = {0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30};
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        parts[i] = HALVE(parts[i], parts[i + 8], low8, low8 + 8);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        parts[i] = HALVE(parts[i], parts[i + 4], low4, low4 + 4);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        parts[i] = HALVE(parts[i], parts[i + 2], low2, low2 + 2);
    return HALVE(parts[0], parts[1], low1, low1 + 1);
}

/* scores[HEADS, stride] of `length` places. */
static void score(const float *queries, const number *keys, int64_t length, int64_t stride,
                  float *scores)
{
    for (int64_t start = 0; start < length; start += LANES) {
        const int64_t left = length - start;
        for (int head = 0; head < HEADS; head++) {
            const number *key = keys + start * PLACE + head / GROUPS * SIZE;
            lanes query[VECTORS], parts[LANES];
            memcpy(query, queries + head * SIZE, sizeof query);
#pragma GCC unroll 16
            for (int place = 0; place < LANES; place++) {
                lanes states[VECTORS];
                load_head(key + (place < left ? place : 0) * PLACE, states);
                parts[place] = query[0] * states[0];
#pragma GCC unroll 8
                for (int i = 1; i < VECTORS; i++)
                    parts[place] += query[i] * states[i];
            }
            lanes found = sums_of(parts);
            memcpy(scores + head * stride + start, &found, sizeof found);
        }
    }
}

/* scores[length] become their shares, which add up to 1; those behind, up to a multiple of LANES,
 * nearly 0. */
static void share(float *scores, int64_t length)
{
    for (; length % LANES; length++)
        scores[length] = -INFINITY;
    const float highest = highest_of(scores, length);
    float totals[LANES] = {0}, total = 0;
    for (int64_t start = 0; start < length; start += LANES)
        for (int i = 0; i < LANES; i++) {
            const float power = exponential(scores[start + i] - highest);
            scores[start + i] = power;
            totals[i] += power;
        }
    for (int i = 0; i < LANES; i++)
        total += totals[i];
    const float factor = 1 / total;
    for (int64_t start = 0; start < length; start += LANES)
        for (int i = 0; i < LANES; i++)
            scores[start + i] *= factor;
}

/* mixed[HEADS, SIZE] = the sum of the values, each times its share, [HEADS, stride]. */
static void mix(const float *shares, const number *values, int64_t length, int64_t stride,
                float *mixed)
{
    memset(mixed, 0, HEADS * SIZE * sizeof *mixed);
    for (int64_t start = 0; start < length; start += LANES) {
        const int64_t end = start + LANES < length ? start + LANES : length;
        for (int pair = 0; pair < KEY_HEADS; pair++) {
            lanes sums[GROUPS][VECTORS];
            memcpy(sums, mixed + pair * GROUPS * SIZE, sizeof sums);
            for (int64_t place = start; place < end; place++) {
                lanes states[VECTORS];
                load_head(values + place * PLACE + pair * SIZE, states);
#pragma GCC unroll 8
                for (int group = 0; group < GROUPS; group++) {
                    const float weight = shares[(pair * GROUPS + group) * stride + place];
#pragma GCC unroll 8
                    for (int i = 0; i < VECTORS; i++)
                        sums[group][i] += weight * states[i];
                }
            }
            memcpy(mixed + pair * GROUPS * SIZE, sums, sizeof sums);
        }
    }
}

/* outputs[HEADS * SIZE] of one token: `queries` [HEADS * SIZE], turned; `scores` [HEADS, stride] is
 * room to compute in. */
static void attend_to(const float *queries, const number *keys, const number *values,
                      int64_t length, int64_t stride, float *scores, number *outputs)
{
    const float scale = 1 / sqrtf(SIZE);
    float ordered[HEADS * SIZE], mixed[HEADS * SIZE];
    for (int i = 0; i < HEADS * SIZE; i++)
        ordered[placed(i)] = queries[i] * scale;
    score(ordered, keys, length, stride, scores);
    for (int head = 0; head < HEADS; head++)
        share(scores + head * stride, length);
    mix(scores, values, length, stride, mixed);
    for (int i = 0; i < HEADS * SIZE; i++)
        outputs[i] = STORE(mixed[placed(i)]);
}
