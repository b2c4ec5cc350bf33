/* Numbers as they are stored and computed with, and what a head is turned by: for kernels that are
 * compiled for one shape (HEADS, KEY_HEADS, SIZE) and one type of numbers (BFLOAT16 or not). */

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#else
#define THREAD 0
#endif

#define GROUPS (HEADS / KEY_HEADS)
#define PACKED ((HEADS + 2 * KEY_HEADS) * SIZE)
#define PLACE (KEY_HEADS * SIZE)
#define FEW 16384

#ifdef BFLOAT16
typedef uint16_t number;

static inline float load(number stored)
{
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline number round_to_nearest_even(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (number)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#define STORE(value) round_to_nearest_even(value)
#else
typedef float number;

static inline float load(number stored) { return stored; }
#define STORE(value) (value)
#endif

/* e^x to 1e-7 for x from -87 to 88: a power of two times a polynomial (Cephes' coefficients). */
static inline float exponential(float x)
{
    x = x > 88 ? 88 : x < -87 ? -87 : x;
    float power = rintf(x * 1.44269504f);
    float rest = x - power * 0.693359375f + power * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1;
    int32_t bits = ((int32_t)power + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* 16 numbers at a time; on processors with shorter vectors in several steps. */
typedef float lanes __attribute__((vector_size(64)));
typedef int32_t integers __attribute__((vector_size(64)));
#define LANES 16
#define VECTORS (SIZE / LANES)

/* A head: its norm if it has one, in place, then its rotation, by its place in the text. The first
 * half of the sines is negative. */
static inline void turn(float *states, const float *weights, const float *cosines,
                        const float *sines, float epsilon, float *turned)
{
    if (weights) {
        float squares = 0;
        for (int i = 0; i < SIZE; i++)
            squares += states[i] * states[i];
        const float factor = 1 / sqrtf(squares / SIZE + epsilon);
        for (int i = 0; i < SIZE; i++)
            states[i] *= factor * weights[i];
    }
    for (int i = 0; i < SIZE / 2; i++) {
        const int j = i + SIZE / 2;
        turned[i] = states[i] * cosines[i] + states[j] * sines[i];
        turned[j] = states[j] * cosines[j] + states[i] * sines[j];
    }
}

/* The highest of scores[length], a multiple of LANES. */
static inline float highest_of(const float *scores, int64_t length)
{
    lanes best, found;
    memcpy(&best, scores, sizeof best);
    for (int64_t start = LANES; start < length; start += LANES) {
        memcpy(&found, scores + start, sizeof found);
        const integers higher = found > best;
        best = (lanes)((higher & (integers)found) | (~higher & (integers)best));
    }
    float highest = best[0];
    for (int i = 1; i < LANES; i++)
        highest = best[i] > highest ? best[i] : highest;
    return highest;
}
