/* All layers of a small Llama or Qwen3 in one call, in bfloat16 on a processor with tiles (AMX).
 *
 * A thread takes a block of rows, which are tokens, through all layers: what lies between two
 * products never leaves its caches, and threads wait for each other once a pass. Products are of
 * numbers in bfloat16, their sums in float32, and so is all else but keys and values. What a row
 * gives does not depend on the rows beside it.
 *
 * Compiled as decode.c is, for BFLOAT16. Not here: embeddings, the last norm and the output layer.
 */

#include "attention.h"

#ifdef __AMX_BF16__
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_PERMISSION 0x1023
#define TILE_DATA 18
#define HEIGHT 16
#define DEPTH 32
#define TILE (HEIGHT * DEPTH)
#define WHOLE(rows) (((rows) + HEIGHT - 1) / HEIGHT * HEIGHT)
#define BARRIER __asm__ volatile("" ::: "memory")

/* Weights and cache of a layer. Matrices are in tiles: [columns / 16, depth / 32] of them, a tile
 * has 16 pairs of rows and in each the 16 columns, the two numbers of a column side by side. */
typedef struct {
    const float *first_norm;
    const number *qkv;
    const float *head_norms;
    const number *output;
    const float *second_norm;
    const number *gate_up;
    const number *down;
    number *keys;
    number *values;
    int64_t sliding;
} layer;

/* Where n tokens stand: [n] each, but `starts` and `lengths`, [2, n], for full and for sliding
 * layers. `outputs` is where a token's result goes, or -1. */
typedef struct {
    const int64_t *positions, *targets, *starts, *lengths, *outputs;
    int64_t count;
} tokens;

typedef struct {
    const layer *layers;
    int64_t count, width, inner, stride;
    const float *cosines, *sines;
    float epsilon;
} network;

/* Room of one thread. */
typedef struct {
    float *hidden, *sums, *scores;
    number *states;
    int64_t *rows;
} room;

/* Whether the system lets this process use tiles. */
int32_t have_tiles(void) { return !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA); }

static void configure(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((packed)) chosen = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        chosen.bytes[tile] = 64;
        chosen.rows[tile] = HEIGHT;
    }
    BARRIER;
    _tile_loadconfig(&chosen);
}

/* outputs[rows, columns] = inputs[rows, depth] * weights, or that is added to them. Rows are a
 * multiple of 16, columns and depth one of 32. */
__attribute__((noinline)) static void product(const number *inputs, const number *weights,
                                              float *outputs, int64_t rows, int64_t depth,
                                              int64_t columns, int added)
{
    const int64_t across = depth / DEPTH, in = depth * sizeof *inputs,
                  out = columns * sizeof *outputs;
    BARRIER;
    for (int64_t column = 0; column < columns; column += 2 * HEIGHT)
        for (int64_t row = 0; row < rows; row += 2 * HEIGHT) {
            const int two = row + HEIGHT < rows;
            const number *first = inputs + row * depth, *second = first + HEIGHT * depth;
            const number *left = weights + column / HEIGHT * across * TILE,
                         *right = left + across * TILE;
            float *above = outputs + row * columns + column, *below = above + HEIGHT * columns;
            if (added) {
                _tile_loadd(0, above, out);
                _tile_loadd(1, above + HEIGHT, out);
            } else {
                _tile_zero(0);
                _tile_zero(1);
            }
            if (two && added) {
                _tile_loadd(2, below, out);
                _tile_loadd(3, below + HEIGHT, out);
            } else {
                _tile_zero(2);
                _tile_zero(3);
            }
            for (int64_t step = 0; step < across; step++) {
                _tile_loadd(4, first + step * DEPTH, in);
                _tile_loadd(6, left + step * TILE, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, right + step * TILE, 64);
                _tile_dpbf16ps(1, 4, 7);
                if (two) {
                    _tile_loadd(5, second + step * DEPTH, in);
                    _tile_dpbf16ps(2, 5, 6);
                    _tile_dpbf16ps(3, 5, 7);
                }
            }
            _tile_stored(0, above, out);
            _tile_stored(1, above + HEIGHT, out);
            if (two) {
                _tile_stored(2, below, out);
                _tile_stored(3, below + HEIGHT, out);
            }
        }
    BARRIER;
}

/* states[rows, width] = hidden / its root mean squares * weights. */
static void normalized(const float *hidden, const float *weights, number *states, int64_t rows,
                       int64_t width, float epsilon)
{
    for (int64_t row = 0; row < rows; row++, hidden += width, states += width) {
        float squares = 0;
        for (int64_t column = 0; column < width; column++)
            squares += hidden[column] * hidden[column];
        const float factor = 1 / sqrtf(squares / width + epsilon);
        for (int64_t column = 0; column < width; column++)
            states[column] = STORE(hidden[column] * factor * weights[column]);
    }
}

/* states[rows, inner] = silu(gates) * ups, of rows that have first the gates, then the ups. */
static void gated(const float *sums, number *states, int64_t rows, int64_t inner)
{
    for (int64_t row = 0; row < rows; row++, sums += 2 * inner, states += inner)
        for (int64_t column = 0; column < inner; column++)
            states[column] = STORE(sums[column] / (1 + exponential(-sums[column])) *
                                   sums[inner + column]);
}

/* One head in place: its norm if it has one, then its rotation, as `turn` does. */
static void turn_here(float *head, const float *weights, const float *cosines, const float *sines,
                      float epsilon)
{
    float states[SIZE];
    float squares = 0, factor = 1;
    memcpy(states, head, sizeof states);
    for (int i = 0; i < SIZE; i++)
        squares += states[i] * states[i];
    if (weights) {
        factor = 1 / sqrtf(squares / SIZE + epsilon);
        for (int i = 0; i < SIZE; i++)
            states[i] *= factor * weights[i];
    }
    for (int i = 0; i < SIZE / 2; i++) {
        const int j = i + SIZE / 2;
        head[i] = states[i] * cosines[i] + states[j] * sines[i];
        head[j] = states[j] * cosines[j] + states[i] * sines[j];
    }
}

/* Queries and keys are turned where they are, [rows, PACKED]; keys and values go into the cache. */
static void remember(const network *model, const layer *own, const tokens *every, int64_t first,
                     int64_t rows, float *packed)
{
    for (int64_t row = 0; row < rows; row++, packed += PACKED) {
        const int64_t place = every->positions[first + row] * SIZE,
                      target = every->targets[first + row] * PLACE;
        for (int head = 0; head < HEADS + KEY_HEADS; head++)
            turn_here(packed + head * SIZE, own->head_norms ? own->head_norms + head * SIZE : 0,
                      model->cosines + place, model->sines + place, model->epsilon);
        const float *keys = packed + HEADS * SIZE, *values = keys + PLACE;
        for (int i = 0; i < PLACE; i++) {
            own->keys[target + i] = STORE(keys[i]);
            own->values[target + i] = STORE(values[i]);
        }
    }
}

/* Of a block of `rows` tokens, those whose result is wanted: all else of them moves up. */
static int64_t wanted(const network *model, const tokens *every, int64_t first, int64_t rows,
                      room own)
{
    int64_t kept = 0;
    for (int64_t row = 0; row < rows; row++)
        if (every->outputs[first + row] >= 0) {
            memmove(own.hidden + kept * model->width, own.hidden + row * model->width,
                    model->width * sizeof *own.hidden);
            memmove(own.sums + kept * PACKED, own.sums + row * PACKED, PACKED * sizeof *own.sums);
            own.rows[kept++] = row;
        }
    return kept;
}

/* A block of tokens through all layers; what they give is added up in own.hidden, [rows, width].
 * Returns how many rows are left, those that own.rows says. */
static int64_t through(const network *model, const tokens *every, int64_t first, int64_t rows,
                       room own)
{
    const int64_t width = model->width, inner = model->inner;
    for (int64_t row = 0; row < rows; row++)
        own.rows[row] = row;
    for (const layer *now = model->layers; now < model->layers + model->count; now++) {
        normalized(own.hidden, now->first_norm, own.states, rows, width, model->epsilon);
        product(own.states, now->qkv, own.sums, WHOLE(rows), width, PACKED, 0);
        remember(model, now, every, first, rows, own.sums);
        if (now + 1 == model->layers + model->count)
            rows = wanted(model, every, first, rows, own);
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = first + own.rows[row] + now->sliding * every->count,
                          start = every->starts[at] * PLACE;
            attend_to(own.sums + row * PACKED, now->keys + start, now->values + start,
                      every->lengths[at], model->stride, own.scores,
                      own.states + row * HEADS * SIZE);
        }
        product(own.states, now->output, own.hidden, WHOLE(rows), HEADS * SIZE, width, 1);
        normalized(own.hidden, now->second_norm, own.states, rows, width, model->epsilon);
        product(own.states, now->gate_up, own.sums, WHOLE(rows), width, 2 * inner, 0);
        gated(own.sums, own.states, rows, inner);
        product(own.states, now->down, own.hidden, WHOLE(rows), inner, width, 1);
    }
    return rows;
}

static int64_t larger(int64_t one, int64_t other) { return one > other ? one : other; }

/* Bytes that a thread needs for blocks of at most `rows` tokens. */
int64_t bytes_needed(int64_t rows, int64_t width, int64_t inner, int64_t stride)
{
    rows = WHOLE(rows);
    const int64_t sums = larger(PACKED, 2 * inner),
                  states = larger(larger(width, inner), HEADS * SIZE);
    const int64_t floats = rows * (width + sums) + HEADS * stride;
    return floats * sizeof(float) + rows * (states * sizeof(number) + sizeof(int64_t));
}

/* All tokens through all layers. `hidden` [n, width] is what goes in, what comes out is in
 * `found`, where `outputs` says. A block are the tokens from one of `blocks` to the next; blocks
 * from one of `chains` to the next come one after the other, chains at the same time. `scratch` is
 * as many bytes as needed for each thread. */
void forward(const layer *layers, int64_t count, int64_t width, int64_t inner,
             const float *cosines, const float *sines, float epsilon, const float *hidden,
             const int64_t *positions, const int64_t *targets, const int64_t *starts,
             const int64_t *lengths, const int64_t *outputs, int64_t n, const int64_t *blocks,
             const int64_t *chains, int64_t chain_count, float *found, char *scratch,
             int64_t most, int64_t stride, int32_t threads)
{
    const network model = {layers, count, width, inner, stride, cosines, sines, epsilon};
    const tokens every = {positions, targets, starts, lengths, outputs, n};
#pragma omp parallel num_threads(threads)
    {
        const int64_t rows = WHOLE(most), sums = larger(PACKED, 2 * inner);
        room own;
        own.hidden = (float *)(scratch + THREAD * bytes_needed(most, width, inner, stride));
        own.sums = own.hidden + rows * width;
        own.scores = own.sums + rows * sums;
        own.rows = (int64_t *)(own.scores + HEADS * stride);
        own.states = (number *)(own.rows + rows);
        configure();
#pragma omp for schedule(dynamic)
        for (int64_t chain = 0; chain < chain_count; chain++)
            for (int64_t block = chains[chain]; block < chains[chain + 1]; block++) {
                const int64_t first = blocks[block], size = blocks[block + 1] - first;
                memcpy(own.hidden, hidden + first * width, size * width * sizeof *hidden);
                const int64_t left = through(&model, &every, first, size, own);
                for (int64_t row = 0; row < left; row++)
                    memcpy(found + outputs[first + own.rows[row]] * width,
                           own.hidden + row * width, width * sizeof *found);
            }
        _tile_release();
    }
}
#else
int32_t have_tiles(void) { return 0; }
#endif
