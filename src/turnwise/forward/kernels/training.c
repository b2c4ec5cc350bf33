/* What a training pass of a small Llama or Qwen3 does between its matrix products, and the gradients
 * of it.
 *
 * Compiled for one shape (HEADS, KEY_HEADS, SIZE) and one type of numbers (BFLOAT16 or not) by
 * compiler.py. Numbers are what matrix products read and write; sums, weights of norms and what is
 * added up over the layers are float32. Rows are cut into the same pieces however many threads there
 * are, and each piece is computed by one, so that results do not depend on them.
 *
 * Not here: matrix products, the embedding, the last norm, and which token sees which.
 */

#include "gate.h"

#define PIECE 64
/* Queries that are computed at once. */
#define TILE 32
#define ROWS 8
#define COLUMNS (2 * LANES)
#define ROUND(count, multiple) (((count) + (multiple)-1) / (multiple) * (multiple))

static inline lanes lanes_at(const float *address)
{
    lanes found;
    memcpy(&found, address, sizeof found);
    return found;
}

/* sums = hidden + deltas, and normalized = sums / their root mean square * weights, [rows, width].
 * Without deltas the sums are the hidden states, and are not written. */
void add_and_normalize(const float *hidden, const number *deltas, const float *weights, float *sums,
                       number *normalized, int64_t rows, int64_t width, float epsilon,
                       int32_t threads)
{
#pragma omp parallel for num_threads(threads) if (rows * width > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const float *states = hidden + row * width;
        number *output = normalized + row * width;
        if (deltas) {
            float *sum = sums + row * width;
            for (int64_t column = 0; column < width; column++)
                sum[column] = states[column] + load(deltas[row * width + column]);
            states = sum;
        }
        float squares = 0;
        for (int64_t column = 0; column < width; column++)
            squares += states[column] * states[column];
        const float factor = 1 / sqrtf(squares / width + epsilon);
        for (int64_t column = 0; column < width; column++)
            output[column] = STORE(states[column] * factor * weights[column]);
    }
}

/* The gradient of the sums, [rows, width], is added to what has come to them otherwise, and stored
 * as numbers besides; that of the weights is [pieces of rows, width]. */
void normalize_gradient(const number *of_normalized, const float *sums, const float *weights,
                        float *of_sums, number *of_deltas, float *of_weights, int64_t rows,
                        int64_t width, float epsilon, int32_t threads)
{
    const int64_t pieces = ROUND(rows, PIECE) / PIECE;
#pragma omp parallel for num_threads(threads) if (rows * width > FEW)
    for (int64_t piece = 0; piece < pieces; piece++) {
        float *of_weight = of_weights + piece * width;
        memset(of_weight, 0, width * sizeof *of_weight);
        const int64_t end = (piece + 1) * PIECE < rows ? (piece + 1) * PIECE : rows;
        for (int64_t row = piece * PIECE; row < end; row++) {
            const number *given = of_normalized + row * width;
            const float *states = sums + row * width;
            float *gradient = of_sums + row * width;
            number *copy = of_deltas + row * width;
            float squares = 0, common = 0;
            for (int64_t column = 0; column < width; column++) {
                squares += states[column] * states[column];
                common += load(given[column]) * weights[column] * states[column];
            }
            const float factor = 1 / sqrtf(squares / width + epsilon);
            const float share = factor * factor * factor * common / width;
#pragma omp simd
            for (int64_t column = 0; column < width; column++) {
                const float found = load(given[column]);
                of_weight[column] += found * factor * states[column];
                gradient[column] += found * weights[column] * factor - share * states[column];
                copy[column] = STORE(gradient[column]);
            }
        }
    }
}

/* The gradient of both, and what was gated once more. */
void gate_gradient(const number *both, const number *of_gated, number *of_both, number *gated,
                   int64_t rows, int64_t inner, int32_t threads)
{
#pragma omp parallel for num_threads(threads) if (rows * inner > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const number *gates = both + 2 * row * inner, *ups = gates + inner;
        number *of_gates = of_both + 2 * row * inner, *of_ups = of_gates + inner;
#pragma omp simd
        for (int64_t column = 0; column < inner; column++) {
            const float open = load(gates[column]), up = load(ups[column]);
            const float given = load(of_gated[row * inner + column]);
            const float share = 1 / (1 + exponential(-open));
            gated[row * inner + column] = STORE(open * share * up);
            of_gates[column] = STORE(given * up * share * (1 + open * (1 - share)));
            of_ups[column] = STORE(given * open * share);
        }
    }
}

/* c[ROWS, COLUMNS] = a[ROWS, inner] b[inner, COLUMNS], added to what is there or not; a's numbers
 * are a_row and a_column apart, so that it can be a transposed one. */
static inline void multiply_block(const float *a, int64_t a_row, int64_t a_column, const float *b,
                                  int64_t b_row, float *c, int64_t c_row, int64_t inner, int add)
{
    lanes sums[ROWS][2];
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++) {
        sums[row][0] = add ? lanes_at(c + row * c_row) : (lanes){0};
        sums[row][1] = add ? lanes_at(c + row * c_row + LANES) : (lanes){0};
    }
    for (int64_t i = 0; i < inner; i++) {
        const lanes low = lanes_at(b + i * b_row), high = lanes_at(b + i * b_row + LANES);
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            const float factor = a[row * a_row + i * a_column];
            sums[row][0] += factor * low;
            sums[row][1] += factor * high;
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++)
        memcpy(c + row * c_row, sums[row], sizeof sums[row]);
}

/* Which token sees which. Tokens stand one after another; a run is some neighbours, of which each
 * sees those before it in the run, and all of the run's spans, which are parts of runs before it of
 * the same tree. */
typedef struct {
    const int64_t *trees;     /* [trees + 1], the first run of each */
    const int64_t *runs;      /* [runs, 2], first token and number of tokens */
    const int64_t *offsets;   /* [runs + 1], the first span of each */
    const int64_t *spans;     /* [spans, 2], first token and number of tokens */
    const int64_t *positions; /* [tokens] */
    const int64_t *slots;     /* [tokens], the row of what comes out, ascending; -1 for none */
} layout;

/* Queries, keys and values of all tokens, and how the first two are turned before they attend. */
typedef struct {
    const number *packed;                     /* [tokens, PACKED] */
    const float *query_weights, *key_weights; /* of norms, [SIZE]; or none */
    const float *cosines, *sines;             /* [positions, SIZE]; the first half is negative */
    float epsilon;
} heads;

/* A head of a token, turned. */
static void turn_stored(const heads *given, const layout *where, int64_t token, int head,
                        float *turned)
{
    const number *stored = given->packed + token * PACKED + head * SIZE;
    const float *weights = head < HEADS ? given->query_weights : given->key_weights;
    const int64_t place = where->positions[token] * SIZE;
    float states[SIZE];
    for (int i = 0; i < SIZE; i++)
        states[i] = load(stored[i]);
    turn(states, weights, given->cosines + place, given->sines + place, given->epsilon, turned);
}

/* The gradient of a head from that of the turned one; that of the weights is added up. */
static void turn_gradient(const heads *given, const layout *where, int64_t token, int head,
                          const float *of_turned, number *of_packed, float *of_weights)
{
    const number *stored = given->packed + token * PACKED + head * SIZE;
    const float *weights = head < HEADS ? given->query_weights : given->key_weights;
    const float *cosines = given->cosines + where->positions[token] * SIZE;
    const float *sines = given->sines + where->positions[token] * SIZE;
    float states[SIZE], found[SIZE];
    for (int i = 0; i < SIZE / 2; i++) {
        const int j = i + SIZE / 2;
        found[i] = of_turned[i] * cosines[i] + of_turned[j] * sines[j];
        found[j] = of_turned[j] * cosines[j] + of_turned[i] * sines[i];
    }
    if (weights) {
        float squares = 0, common = 0;
        for (int i = 0; i < SIZE; i++) {
            states[i] = load(stored[i]);
            squares += states[i] * states[i];
            common += found[i] * weights[i] * states[i];
        }
        const float factor = 1 / sqrtf(squares / SIZE + given->epsilon);
        const float share = factor * factor * factor * common / SIZE;
        for (int i = 0; i < SIZE; i++) {
            of_weights[i] += found[i] * factor * states[i];
            found[i] = found[i] * weights[i] * factor - share * states[i];
        }
    }
    for (int i = 0; i < SIZE; i++)
        of_packed[token * PACKED + head * SIZE + i] = STORE(found[i]);
}

/* What the queries of a run attend to: keys and values, [length, SIZE] and [SIZE, stride]. The first
 * `before` are those of its spans. Places up to a multiple of COLUMNS are 0. */
typedef struct {
    int64_t before, length, stride;
    float *keys, *values, *keys_across, *values_across;
} places;

static void transpose(const float *states, int64_t length, float *across)
{
    for (int64_t place = 0; place < length; place++)
        for (int i = 0; i < SIZE; i++)
            across[i * length + place] = states[place * SIZE + i];
}

/* The tokens of a run's span, first and number; the run itself comes after its spans. */
static const int64_t *span_of(const layout *where, int64_t run, int64_t span)
{
    return span == where->offsets[run + 1] ? where->runs + 2 * run : where->spans + 2 * span;
}

static void see(const heads *given, const layout *where, int64_t run, int pair, places *found)
{
    int64_t place = 0;
    for (int64_t span = where->offsets[run]; span <= where->offsets[run + 1]; span++) {
        const int64_t *tokens = span_of(where, run, span);
        found->before = place;
        for (int64_t token = tokens[0]; token < tokens[0] + tokens[1]; token++, place++) {
            turn_stored(given, where, token, HEADS + pair, found->keys + place * SIZE);
            const number *value = given->packed + token * PACKED + (HEADS + KEY_HEADS + pair) * SIZE;
            for (int i = 0; i < SIZE; i++)
                found->values[place * SIZE + i] = load(value[i]);
        }
    }
    found->length = place;
    found->stride = ROUND(place, COLUMNS);
    const size_t rest = (found->stride - place) * SIZE * sizeof(float);
    memset(found->keys + place * SIZE, 0, rest);
    memset(found->values + place * SIZE, 0, rest);
    transpose(found->keys, found->stride, found->keys_across);
}

/* Some queries of a run, of one head: up to TILE. Each sees more places than those before it. */
typedef struct {
    int count;
    int64_t rows, columns; /* to be computed: multiples of ROWS and COLUMNS */
    int64_t tokens[TILE], slots[TILE], visible[TILE];
    float states[TILE * SIZE]; /* turned, and over the root of SIZE */
} queries;

/* The next ones from `offset` on; returns where to go on. */
static int64_t ask(const heads *given, const layout *where, int64_t run, int head, int64_t offset,
                   int64_t before, queries *asked)
{
    const int64_t start = where->runs[2 * run], length = where->runs[2 * run + 1];
    const float scale = 1 / sqrtf(SIZE);
    int count = 0;
    for (; offset < length && count < TILE; offset++) {
        const int64_t token = start + offset, slot = where->slots ? where->slots[token] : token;
        if (slot < 0)
            continue;
        float *states = asked->states + count * SIZE;
        turn_stored(given, where, token, head, states);
        for (int i = 0; i < SIZE; i++)
            states[i] *= scale;
        asked->tokens[count] = token;
        asked->slots[count] = slot * HEADS + head;
        asked->visible[count++] = before + offset + 1;
    }
    asked->count = count;
    asked->rows = ROUND(count, ROWS);
    asked->columns = count ? ROUND(asked->visible[count - 1], COLUMNS) : 0;
    memset(asked->states + count * SIZE, 0, (asked->rows - count) * SIZE * sizeof(float));
    return offset;
}

/* How many places the ROWS queries from `row` on see at most. */
static inline int64_t reach(const queries *asked, int64_t row)
{
    const int64_t last = row + ROWS < asked->count ? row + ROWS : asked->count;
    return asked->visible[last - 1];
}

/* products[rows, columns] = states [rows, SIZE] times across [SIZE, stride], as far as is seen. */
static void compare(const queries *asked, const float *states, const float *across, int64_t stride,
                    float *products)
{
    for (int64_t row = 0; row < asked->rows; row += ROWS)
        for (int64_t column = 0; column < reach(asked, row); column += COLUMNS)
            multiply_block(states + row * SIZE, SIZE, 1, across + column, stride,
                           products + row * asked->columns + column, asked->columns, SIZE, 0);
}

/* mixed[rows, SIZE] = shares [rows, columns] times states [columns, SIZE]. */
static void mix(const queries *asked, const float *shares, const float *states, float *mixed)
{
    for (int64_t row = 0; row < asked->rows; row += ROWS)
        for (int column = 0; column < SIZE; column += COLUMNS)
            multiply_block(shares + row * asked->columns, asked->columns, 1, states + column, SIZE,
                           mixed + row * SIZE + column, SIZE, reach(asked, row), 0);
}

/* collected[columns, SIZE] += shares [rows, columns], transposed, times states [rows, SIZE]. */
static void collect(const queries *asked, const float *shares, const float *states,
                    float *collected)
{
    int64_t first = 0;
    for (int64_t place = 0; place < asked->visible[asked->count - 1]; place += ROWS) {
        while (asked->visible[first] <= place)
            first++;
        for (int column = 0; column < SIZE; column += COLUMNS)
            multiply_block(shares + first * asked->columns + place, 1, asked->columns,
                           states + first * SIZE + column, SIZE, collected + place * SIZE + column,
                           SIZE, asked->rows - first, 1);
    }
}

/* Nothing is seen behind what a query sees, and by rows that are no queries. */
static void clear_rest(const queries *asked, float *shares)
{
    for (int64_t row = 0; row < asked->rows; row++) {
        const int64_t visible = row < asked->count ? asked->visible[row] : 0;
        memset(shares + row * asked->columns + visible, 0,
               (asked->columns - visible) * sizeof *shares);
    }
}

/* What the scores of a query are measured by: their highest, and the sum of e to the power of what
 * they are above it. */
typedef struct {
    float highest, total;
} measure;

/* scores[visible] become e to the power of what they are above the highest. */
static measure raise(float *scores, int64_t visible)
{
    for (int64_t i = visible; i < ROUND(visible, LANES); i++)
        scores[i] = -INFINITY;
    measure found = {highest_of(scores, ROUND(visible, LANES)), 0};
    for (int64_t i = 0; i < visible; i++) {
        scores[i] = exponential(scores[i] - found.highest);
        found.total += scores[i];
    }
    return found;
}

/* outputs [slots, HEADS, SIZE] and measures [slots, HEADS] of some queries. */
static void attend_to(const queries *asked, const places *seen, float *scores, number *outputs,
                      measure *measures)
{
    float mixed[TILE * SIZE];
    compare(asked, asked->states, seen->keys_across, seen->stride, scores);
    for (int row = 0; row < asked->count; row++)
        measures[asked->slots[row]] =
            raise(scores + row * asked->columns, asked->visible[row]);
    clear_rest(asked, scores);
    mix(asked, scores, seen->values, mixed);
    for (int row = 0; row < asked->count; row++) {
        const int64_t slot = asked->slots[row];
        const float factor = 1 / measures[slot].total;
        for (int i = 0; i < SIZE; i++)
            outputs[slot * SIZE + i] = STORE(mixed[row * SIZE + i] * factor);
    }
}

/* For `count` trees, in scratch of [threads, longest, 3 * SIZE + TILE]: outputs [slots, HEADS, SIZE],
 * and measures of the scores, [slots, HEADS]. */
void attend(const number *packed, const float *query_weights, const float *key_weights,
            const float *cosines, const float *sines, const int64_t *trees, const int64_t *runs,
            const int64_t *offsets, const int64_t *spans, const int64_t *positions,
            const int64_t *slots, number *outputs, measure *measures, float *scratch, int64_t count,
            int64_t longest, float epsilon, int32_t threads)
{
    const layout where = {trees, runs, offsets, spans, positions, slots};
    const heads given = {packed, query_weights, key_weights, cosines, sines, epsilon};
#pragma omp parallel num_threads(threads)
    {
        const int64_t room = longest * SIZE;
        float *own = scratch + THREAD * (3 * room + longest * TILE);
        places seen = {.keys = own, .values = own + room, .keys_across = own + 2 * room};
        queries asked;
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < count * KEY_HEADS; item++) {
            const int64_t tree = item / KEY_HEADS, pair = item % KEY_HEADS;
            for (int64_t run = trees[tree]; run < trees[tree + 1]; run++) {
                see(&given, &where, run, pair, &seen);
                for (int head = pair * GROUPS; head < (pair + 1) * GROUPS; head++)
                    for (int64_t offset = 0; offset < runs[2 * run + 1];) {
                        offset = ask(&given, &where, run, head, offset, seen.before, &asked);
                        if (asked.count)
                            attend_to(&asked, &seen, own + 3 * room, outputs, measures);
                    }
            }
        }
    }
}

/* What has been computed, and the gradient of it. */
typedef struct {
    const number *outputs, *of_outputs; /* [slots, HEADS, SIZE] */
    const measure *measures;            /* [slots, HEADS] */
} results;

/* The gradients of some turned queries, and, added to what is there, of the places they see. */
static void attend_gradient_to(const queries *asked, const places *seen, const results *found,
                               float *shares, float *of_scores, float *of_queries, float *of_keys,
                               float *of_values)
{
    float of_mixed[TILE * SIZE];
    memset(of_mixed, 0, sizeof of_mixed);
    for (int row = 0; row < asked->count; row++)
        for (int i = 0; i < SIZE; i++)
            of_mixed[row * SIZE + i] = load(found->of_outputs[asked->slots[row] * SIZE + i]);
    compare(asked, asked->states, seen->keys_across, seen->stride, shares);
    compare(asked, of_mixed, seen->values_across, seen->stride, of_scores);
    for (int row = 0; row < asked->count; row++) {
        float *own = shares + row * asked->columns, *of_own = of_scores + row * asked->columns;
        const number *output = found->outputs + asked->slots[row] * SIZE;
        const measure by = found->measures[asked->slots[row]];
        const float factor = 1 / by.total;
        float common = 0;
        for (int i = 0; i < SIZE; i++)
            common += of_mixed[row * SIZE + i] * load(output[i]);
        for (int64_t i = 0; i < asked->visible[row]; i++) {
            own[i] = exponential(own[i] - by.highest) * factor;
            of_own[i] = own[i] * (of_own[i] - common);
        }
    }
    clear_rest(asked, shares);
    clear_rest(asked, of_scores);
    mix(asked, of_scores, seen->keys, of_queries);
    collect(asked, of_scores, asked->states, of_keys);
    collect(asked, shares, of_mixed, of_values);
}

/* The gradient of packed from that of the outputs; of_weights [trees * KEY_HEADS, 2, SIZE] are those
 * of the queries' and the keys' norm. Scratch is [threads, longest, 6 * SIZE + 2 * TILE], and besides
 * [threads, largest, 2 * SIZE] for the keys and values of a whole tree, of `largest` tokens at most.
 * Runs go from last to first: when one's turn comes, all that see it have had theirs. */
void attend_gradient(const number *packed, const float *query_weights, const float *key_weights,
                     const float *cosines, const float *sines, const int64_t *trees,
                     const int64_t *runs, const int64_t *offsets, const int64_t *spans,
                     const int64_t *positions, const int64_t *slots, const number *outputs,
                     const measure *measures, const number *of_outputs, number *of_packed,
                     float *of_weights, float *scratch, int64_t count, int64_t longest,
                     int64_t largest, float epsilon, int32_t threads)
{
    const layout where = {trees, runs, offsets, spans, positions, slots};
    const heads given = {packed, query_weights, key_weights, cosines, sines, epsilon};
    const results found = {outputs, of_outputs, measures};
#pragma omp parallel num_threads(threads)
    {
        const int64_t room = longest * SIZE, whole = largest * SIZE;
        float *own = scratch + THREAD * (6 * room + 2 * longest * TILE + 2 * whole);
        places seen = {.keys = own,
                       .values = own + room,
                       .keys_across = own + 2 * room,
                       .values_across = own + 3 * room};
        float *of_keys = own + 4 * room, *of_values = own + 5 * room, *shares = own + 6 * room;
        float *of_scores = shares + longest * TILE, *tree_keys = of_scores + longest * TILE;
        float *tree_values = tree_keys + whole, of_queries[TILE * SIZE];
        queries asked;
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < count * KEY_HEADS; item++) {
            const int64_t tree = item / KEY_HEADS, pair = item % KEY_HEADS;
            const int64_t first = runs[2 * trees[tree]];
            float *of_weight = of_weights + item * 2 * SIZE;
            const int64_t *last = runs + 2 * (trees[tree + 1] - 1);
            const size_t tokens = (last[0] + last[1] - first) * SIZE * sizeof(float);
            memset(tree_keys, 0, tokens);
            memset(tree_values, 0, tokens);
            for (int64_t run = trees[tree + 1] - 1; run >= trees[tree]; run--) {
                const int64_t start = runs[2 * run], end = start + runs[2 * run + 1];
                see(&given, &where, run, pair, &seen);
                transpose(seen.values, seen.stride, seen.values_across);
                memset(of_keys, 0, seen.stride * SIZE * sizeof *of_keys);
                memset(of_values, 0, seen.stride * SIZE * sizeof *of_values);
                for (int head = pair * GROUPS; head < (pair + 1) * GROUPS; head++) {
                    if (slots)
                        for (int64_t token = start; token < end; token++)
                            memset(of_packed + token * PACKED + head * SIZE, 0,
                                   SIZE * sizeof *of_packed);
                    for (int64_t offset = 0; offset < end - start;) {
                        offset = ask(&given, &where, run, head, offset, seen.before, &asked);
                        if (!asked.count)
                            continue;
                        attend_gradient_to(&asked, &seen, &found, shares, of_scores, of_queries,
                                           of_keys, of_values);
                        for (int i = 0; i < asked.count * SIZE; i++)
                            of_queries[i] /= sqrtf(SIZE);
                        for (int row = 0; row < asked.count; row++)
                            turn_gradient(&given, &where, asked.tokens[row], head,
                                          of_queries + row * SIZE, of_packed, of_weight);
                    }
                }
                int64_t place = 0;
                for (int64_t span = offsets[run]; span <= offsets[run + 1]; span++) {
                    const int64_t *tokens = span_of(&where, run, span);
                    const int64_t there = (tokens[0] - first) * SIZE;
                    for (int64_t i = 0; i < tokens[1] * SIZE; i++, place++) {
                        tree_keys[there + i] += of_keys[place];
                        tree_values[there + i] += of_values[place];
                    }
                }
                for (int64_t token = start; token < end; token++) {
                    number *value = of_packed + token * PACKED + (HEADS + KEY_HEADS + pair) * SIZE;
                    turn_gradient(&given, &where, token, HEADS + pair,
                                  tree_keys + (token - first) * SIZE, of_packed, of_weight + SIZE);
                    for (int i = 0; i < SIZE; i++)
                        value[i] = STORE(tree_values[(token - first) * SIZE + i]);
                }
            }
        }
    }
}
