/* The gate of a feed-forward, for sampling and for training. Compiled as numbers.h is. */

#include "numbers.h"

/* gated = silu(gates) * ups, [rows, inner], of rows that have first the gates, then the ups. */
void gate(const number *both, number *gated, int64_t rows, int64_t inner, int32_t threads)
{
#pragma omp parallel for num_threads(threads) if (rows * inner > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const number *gates = both + 2 * row * inner, *ups = gates + inner;
        for (int64_t column = 0; column < inner; column++) {
            const float open = load(gates[column]);
            gated[row * inner + column] =
                STORE(open / (1 + exponential(-open)) * load(ups[column]));
        }
    }
}
