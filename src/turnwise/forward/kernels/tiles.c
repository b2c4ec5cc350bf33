/* All layers of a small Llama or Qwen3 in one call, in bfloat16 on a processor with tiles (AMX).
 *
 * A thread takes a block of rows, which are tokens, through all layers: what lies between two
 * products never leaves its caches, and threads wait for each other once a pass. Products are of
 * numbers in bfloat16, their sums in float32, and so is all else but keys and values. What a row
 * gives does not depend on the rows beside it.
 *
 * Compiled as decode.c is, for BFLOAT16. Not here: the output layer.
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
#define TOGETHER 4 /* so many tokens of a text are worth putting its keys into tiles */
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
    float *hidden, *sums, *scores, *mixed;
    number *states, *shares, *queries, *keys, *values;
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

/* found[width] = hidden / its root mean square * weights. */
static void scaled(const float *hidden, const float *weights, int64_t width, float epsilon,
                   float *found)
{
    float squares = 0;
    for (int64_t column = 0; column < width; column++)
        squares += hidden[column] * hidden[column];
    const float factor = 1 / sqrtf(squares / width + epsilon);
    for (int64_t column = 0; column < width; column++)
        found[column] = hidden[column] * factor * weights[column];
}

/* states[rows, width], each row as `scaled` has it. */
static void normalized(const float *hidden, const float *weights, number *states, int64_t rows,
                       int64_t width, float epsilon)
{
    for (int64_t row = 0; row < rows; row++, hidden += width, states += width) {
        float found[width];
        scaled(hidden, weights, width, epsilon, found);
        for (int64_t column = 0; column < width; column++)
            states[column] = STORE(found[column]);
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

/* Queries and keys are turned where they are, [rows, PACKED]; keys and values go into the cache. */
static void remember(const network *model, const layer *own, const tokens *every, int64_t first,
                     int64_t rows, float *packed)
{
    for (int64_t row = 0; row < rows; row++, packed += PACKED) {
        const int64_t place = every->positions[first + row] * SIZE,
                      target = every->targets[first + row] * PLACE;
        for (int head = 0; head < HEADS + KEY_HEADS; head++) {
            float states[SIZE];
            memcpy(states, packed + head * SIZE, sizeof states);
            turn(states, own->head_norms ? own->head_norms + head * SIZE : 0,
                 model->cosines + place, model->sines + place, model->epsilon,
                 packed + head * SIZE);
        }
        const float *keys = packed + HEADS * SIZE, *values = keys + PLACE;
        for (int i = 0; i < PLACE; i++) {
            own->keys[target + i] = STORE(keys[i]);
            own->values[target + i] = STORE(values[i]);
        }
    }
}

/* Keys of a head, `length` places, as weights: [places, SIZE] turned round. */
static void keys_in_tiles(const number *keys, int64_t length, number *tiles)
{
    for (int64_t start = 0; start < length; start += HEIGHT)
        for (int part = 0; part < SIZE / DEPTH; part++, tiles += TILE)
        {
            integers places;
            for (int place = 0; place < HEIGHT; place++)
                places[place] = (start + place < length ? place : 0) * (PLACE / 2);
            for (int pair = 0; pair < HEIGHT; pair++) {
                const number *from = keys + start * PLACE + part * DEPTH + 2 * pair;
                _mm512_storeu_si512(tiles + 2 * pair * HEIGHT,
                                    _mm512_i32gather_epi32((__m512i)places, from, 4));
            }
        }
}

/* Values of a head as weights: [places, SIZE], zeros behind the last one up to `whole`. */
static void values_in_tiles(const number *values, int64_t length, int64_t whole, number *tiles)
{
    static const number none[SIZE];
    for (int64_t start = 0; start < whole; start += DEPTH)
        for (int pair = 0; pair < DEPTH / 2; pair++) {
            const int64_t place = start + 2 * pair;
            const number *even = place < length ? values + place * PLACE : none,
                         *odd = place + 1 < length ? values + (place + 1) * PLACE : none;
            for (int part = 0; part < SIZE / HEIGHT; part++) {
                const int64_t tile = part * (whole / DEPTH) + start / DEPTH;
                uint32_t both[HEIGHT];
                for (int i = 0; i < HEIGHT; i++)
                    both[i] = even[part * HEIGHT + i] | (uint32_t)odd[part * HEIGHT + i] << 16;
                memcpy(tiles + tile * TILE + 2 * pair * HEIGHT, both, sizeof both);
            }
        }
}

/* Of scores[whole] of a token that sees `length` places, its shares; 0 of the others. */
static void shared(float *scores, int64_t length, int64_t whole, number *shares)
{
    share(scores, length);
    for (int64_t start = 0; start < length; start += LANES)
        for (int i = 0; i < LANES; i++)
            shares[start + i] = STORE(scores[start + i]);
    memset(shares + length, 0, (whole - length) * sizeof *shares);
}

/* What `rows` tokens of one text give, each of which sees one place more than the one before it,
 * the last one `length`: products of all of them with all places. packed [rows, PACKED] has their
 * queries; outputs [rows, HEADS * SIZE]. */
static void attend_together(const float *packed, const number *keys, const number *values,
                            int64_t rows, int64_t length, room own, number *outputs)
{
    const float scale = 1 / sqrtf(SIZE);
    const int64_t whole = (length + DEPTH - 1) / DEPTH * DEPTH, high = WHOLE(rows);
    for (int pair = 0; pair < KEY_HEADS; pair++) {
        keys_in_tiles(keys + pair * SIZE, length, own.keys);
        values_in_tiles(values + pair * SIZE, length, whole, own.values);
        for (int group = 0; group < GROUPS; group++) {
            const int head = (pair * GROUPS + group) * SIZE;
            for (int64_t row = 0; row < rows; row++)
                for (int i = 0; i < SIZE; i++)
                    own.queries[row * SIZE + i] = STORE(packed[row * PACKED + head + i] * scale);
            product(own.queries, own.keys, own.scores, high, SIZE, whole, 0);
            for (int64_t row = 0; row < rows; row++)
                shared(own.scores + row * whole, length - rows + 1 + row, whole,
                       own.shares + row * whole);
            product(own.shares, own.values, own.mixed, high, whole, SIZE, 0);
            for (int64_t row = 0; row < rows; row++)
                for (int i = 0; i < SIZE; i++)
                    outputs[row * HEADS * SIZE + head + i] = STORE(own.mixed[row * SIZE + i]);
        }
    }
}

/* Own.states[rows, HEADS * SIZE] = what each token sees. */
static void look(const network *model, const layer *now, const tokens *every, int64_t first,
                 int64_t rows, room own)
{
    for (int64_t row = 0, next; row < rows; row = next) {
        const int64_t at = first + own.rows[row] + now->sliding * every->count,
                      start = every->starts[at];
        for (next = row + 1; next < rows && !now->sliding; next++)
            if (every->starts[first + own.rows[next]] != start)
                break;
        const float *packed = own.sums + row * PACKED;
        const number *keys = now->keys + start * PLACE, *values = now->values + start * PLACE;
        number *outputs = own.states + row * HEADS * SIZE;
        if (next - row >= TOGETHER) {
            attend_together(packed, keys, values, next - row,
                            every->lengths[first + own.rows[next - 1]], own, outputs);
            continue;
        }
        attend_to(packed, keys, values, every->lengths[at], model->stride, own.scores, outputs);
        next = row + 1;
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
        look(model, now, every, first, rows, own);
        product(own.states, now->output, own.hidden, WHOLE(rows), HEADS * SIZE, width, 1);
        normalized(own.hidden, now->second_norm, own.states, rows, width, model->epsilon);
        product(own.states, now->gate_up, own.sums, WHOLE(rows), width, 2 * inner, 0);
        gated(own.sums, own.states, rows, inner);
        product(own.states, now->down, own.hidden, WHOLE(rows), inner, width, 1);
    }
    return rows;
}

static int64_t larger(int64_t one, int64_t other) { return one > other ? one : other; }

static void *taken(char **left, int64_t bytes)
{
    void *here = *left;
    *left += (bytes + 63) / 64 * 64;
    return here;
}

/* Cut out of `scratch`, for blocks of at most `rows` tokens. Returns what is behind it. */
static char *cut(char *scratch, int64_t rows, int64_t width, int64_t inner, int64_t stride,
                 room *own)
{
    rows = WHOLE(rows);
    const int64_t sums = larger(PACKED, 2 * inner),
                  states = larger(larger(width, inner), HEADS * SIZE);
    own->hidden = taken(&scratch, rows * width * sizeof(float));
    own->sums = taken(&scratch, rows * sums * sizeof(float));
    own->scores = taken(&scratch, larger(rows, HEADS) * stride * sizeof(float));
    own->mixed = taken(&scratch, rows * SIZE * sizeof(float));
    own->states = taken(&scratch, rows * states * sizeof(number));
    own->shares = taken(&scratch, rows * stride * sizeof(number));
    own->queries = taken(&scratch, rows * SIZE * sizeof(number));
    own->keys = taken(&scratch, stride * SIZE * sizeof(number));
    own->values = taken(&scratch, stride * SIZE * sizeof(number));
    own->rows = taken(&scratch, rows * sizeof(int64_t));
    return scratch;
}

/* Bytes that a thread needs for blocks of at most `rows` tokens. */
int64_t bytes_needed(int64_t rows, int64_t width, int64_t inner, int64_t stride)
{
    room own;
    return (int64_t)cut(0, rows, width, inner, stride, &own);
}

/* All tokens through all layers. `ids` [n] are of `embedding` [vocabulary, width]; what comes out is
 * in `found`, where `outputs` says. A block are the tokens from one of `blocks` to the next; blocks
 * from one of `chains` to the next come one after the other, chains at the same time. `stride` is a
 * multiple of 32 that no length is above. `scratch` is as many bytes as needed for each thread. */
void forward(const layer *layers, int64_t count, int64_t width, int64_t inner,
             const float *cosines, const float *sines, float epsilon, const float *embedding,
             const float *last_norm, const int64_t *ids, const int64_t *positions, const int64_t *targets, const int64_t *starts,
             const int64_t *lengths, const int64_t *outputs, int64_t n, const int64_t *blocks,
             const int64_t *chains, int64_t chain_count, float *found, char *scratch,
             int64_t most, int64_t stride, int32_t threads)
{
    const network model = {layers, count, width, inner, stride, cosines, sines, epsilon};
    const tokens every = {positions, targets, starts, lengths, outputs, n};
#pragma omp parallel num_threads(threads)
    {
        room own;
        cut(scratch + THREAD * bytes_needed(most, width, inner, stride), most, width, inner,
            stride, &own);
        configure();
#pragma omp for schedule(dynamic)
        for (int64_t chain = 0; chain < chain_count; chain++)
            for (int64_t block = chains[chain]; block < chains[chain + 1]; block++) {
                const int64_t first = blocks[block], size = blocks[block + 1] - first;
                for (int64_t row = 0; row < size; row++)
                    memcpy(own.hidden + row * width, embedding + ids[first + row] * width,
                           width * sizeof *embedding);
                const int64_t left = through(&model, &every, first, size, own);
                for (int64_t row = 0; row < left; row++)
                    scaled(own.hidden + row * width, last_norm, width, epsilon,
                           found + outputs[first + own.rows[row]] * width);
            }
        _tile_release();
    }
}
#else
int32_t have_tiles(void) { return 0; }
#endif
