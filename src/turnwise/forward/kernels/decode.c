/* What a decode step does between the matrix products of a small Llama or Qwen3: one token of each
 * of `rows` histories, whose keys and values are read where they are.
 *
 * Compiled for one shape (HEADS, KEY_HEADS, SIZE) and one type of numbers (BFLOAT16 or not) by
 * compiler.py. Sums are in float32 whatever the type. Each row is computed by one thread, so that
 * nothing depends on how many threads or neighbours there are.
 *
 * Not here: matrix products, and which row has which run of the cache.
 */

#include "attention.h"
#include "gate.h"

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

/* Keys and values of the rows' tokens go to their targets in the pool, [places, KEY_HEADS, SIZE];
 * then each token attends to `lengths` places from its `starts` on.
 *
 * packed [rows, PACKED]: queries, keys, values. weights [HEADS + KEY_HEADS, SIZE] of the heads'
 * norms, or none. cosines and sines [positions, SIZE]. outputs [rows, HEADS * SIZE].
 * scratch [threads, HEADS, stride], where stride is at least the longest length.
 */
void attend(const number *packed, const float *weights, const float *cosines, const float *sines,
            const int64_t *positions, const int64_t *targets, const int64_t *starts,
            const int64_t *lengths, number *keys, number *values, number *outputs, float *scratch,
            int64_t stride, int64_t rows, float epsilon, int32_t threads)
{
#pragma omp parallel num_threads(threads)
    {
        float queries[(HEADS + KEY_HEADS) * SIZE];
        float *scores = scratch + THREAD * HEADS * stride;
#pragma omp for schedule(dynamic)
        for (int64_t row = 0; row < rows; row++) {
            const number *states = packed + row * PACKED;
            const int64_t place = positions[row] * SIZE, length = lengths[row];
            for (int head = 0; head < HEADS + KEY_HEADS; head++) {
                float loaded[SIZE];
                for (int i = 0; i < SIZE; i++)
                    loaded[i] = load(states[head * SIZE + i]);
                turn(loaded, weights ? weights + head * SIZE : 0, cosines + place, sines + place,
                     epsilon, queries + head * SIZE);
            }
            number *key = keys + targets[row] * PLACE;
            for (int i = 0; i < PLACE; i++)
                key[i] = STORE(queries[HEADS * SIZE + i]);
            memcpy(values + targets[row] * PLACE, states + HEADS * SIZE + PLACE,
                   PLACE * sizeof *values);
            attend_to(queries, keys + starts[row] * PLACE, values + starts[row] * PLACE, length,
                      stride, scores, outputs + row * HEADS * SIZE);
        }
    }
}
