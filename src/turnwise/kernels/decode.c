/* What a decode step does between the matrix products of a small Llama or Qwen3: one token of each
 * of `rows` histories, whose keys and values are read where they are.
 *
 * Compiled for one shape (HEADS, KEY_HEADS, SIZE) and one type of numbers (BFLOAT16 or not) by
 * compiler.py. Sums are in float32 whatever the type. Each row is computed by one thread, so that
 * nothing depends on how many threads or neighbours there are.
 *
 * Not here: matrix products, and which row has which run of the cache.
 */

#include "numbers.h"

/* One head of a row: its norm if it has one, then its rotation. */
static void turn(const number *head, const number *weights, const float *cosines,
                 const float *sines, float epsilon, float *turned)
{
    float states[SIZE];
    float squares = 0;
    for (int i = 0; i < SIZE; i++) {
        states[i] = load(head[i]);
        squares += states[i] * states[i];
    }
    if (weights) {
        const float factor = 1 / sqrtf(squares / SIZE + epsilon);
        for (int i = 0; i < SIZE; i++)
            states[i] *= factor * load(weights[i]);
    }
    rotate(states, cosines, sines, turned);
}

/* outputs = inputs / their root mean square * weights, [rows, width]. */
void normalize(const number *inputs, const number *weights, number *outputs, int64_t rows,
               int64_t width, float epsilon, int32_t threads)
{
#pragma omp parallel for num_threads(threads) if (rows * width > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const number *input = inputs + row * width;
        number *output = outputs + row * width;
        float squares = 0;
        for (int64_t column = 0; column < width; column++)
            squares += load(input[column]) * load(input[column]);
        float factor = 1 / sqrtf(squares / width + epsilon);
        for (int64_t column = 0; column < width; column++)
            output[column] = STORE(load(input[column]) * factor * load(weights[column]));
    }
}

/* outputs = silu(gates) * ups, [rows, inner], of rows that have first the gates, then the ups. */
void gate(const number *inputs, number *outputs, int64_t rows, int64_t inner, int32_t threads)
{
#pragma omp parallel for num_threads(threads) if (rows * inner > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const number *gates = inputs + 2 * row * inner, *ups = gates + inner;
        number *output = outputs + row * inner;
        for (int64_t column = 0; column < inner; column++) {
            float open = load(gates[column]);
            output[column] = STORE(open / (1 + exponential(-open)) * load(ups[column]));
        }
    }
}

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

/* scores[length] become their shares, which add up to 1. */
static void share(float *scores, int64_t length)
{
    const float highest = highest_of(scores, length);
    float total = 0;
    for (int64_t i = 0; i < length; i++) {
        scores[i] = exponential(scores[i] - highest);
        total += scores[i];
    }
    for (int64_t i = 0; i < length; i++)
        scores[i] /= total;
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

/* Keys and values of the rows' tokens go to their targets in the pool, [places, KEY_HEADS, SIZE];
 * then each token attends to `lengths` places from its `starts` on.
 *
 * packed [rows, PACKED]: queries, keys, values. weights [HEADS + KEY_HEADS, SIZE] of the heads'
 * norms, or none. cosines and sines [positions, SIZE]. outputs [rows, HEADS * SIZE].
 * scratch [threads, HEADS, stride], where stride is at least the longest length.
 */
void attend(const number *packed, const number *weights, const float *cosines, const float *sines,
            const int64_t *positions, const int64_t *targets, const int64_t *starts,
            const int64_t *lengths, number *keys, number *values, number *outputs, float *scratch,
            int64_t stride, int64_t rows, float epsilon, int32_t threads)
{
    const float scale = 1 / sqrtf(SIZE);
#pragma omp parallel num_threads(threads)
    {
        float queries[(HEADS + KEY_HEADS) * SIZE], ordered[HEADS * SIZE],
            mixed[HEADS * SIZE];
        float *scores = scratch + THREAD * HEADS * stride;
#pragma omp for schedule(dynamic)
        for (int64_t row = 0; row < rows; row++) {
            const number *states = packed + row * PACKED;
            const int64_t place = positions[row] * SIZE, length = lengths[row];
            for (int head = 0; head < HEADS + KEY_HEADS; head++)
                turn(states + head * SIZE, weights ? weights + head * SIZE : 0, cosines + place,
                     sines + place, epsilon, queries + head * SIZE);
            number *key = keys + targets[row] * PLACE;
            for (int i = 0; i < PLACE; i++)
                key[i] = STORE(queries[HEADS * SIZE + i]);
            memcpy(values + targets[row] * PLACE, states + HEADS * SIZE + PLACE,
                   PLACE * sizeof *values);
            for (int i = 0; i < HEADS * SIZE; i++)
                ordered[placed(i)] = queries[i] * scale;
            score(ordered, keys + starts[row] * PLACE, length, stride, scores);
            for (int head = 0; head < HEADS; head++)
                share(scores + head * stride, length);
            mix(scores, values + starts[row] * PLACE, length, stride, mixed);
            for (int i = 0; i < HEADS * SIZE; i++)
                outputs[row * HEADS * SIZE + i] = STORE(mixed[placed(i)]);
        }
    }
}
