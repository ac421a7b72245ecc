/* What lies between the products of a layer: residual and norm, and the gate. One row at a time, so that
 * its bits depend on nothing else. Sizes are multiples of 16.
 */
#include "elements.h"

#define FEW 4                  /* rows that one thread handles before others have woken */

typedef struct {
    const T *x;                /* [rows, size] */
    const T *change;           /* added to x first, or null */
    const T *weight;           /* [size] */
    T *sum;                    /* x + change; unused without a change */
    T *out;
    long rows, size;
    float eps;
} Norm;

/* RMS norm of x + change, taken of the sum as it is stored. */
void NAME(norm)(const Norm *a) {
    #pragma omp parallel for schedule(static) if (a->rows > FEW)
    for (long r = 0; r < a->rows; r++) {
        const T *x = a->x + r * a->size;
        if (a->change) {
            T *sum = a->sum + r * a->size;
            for (long i = 0; i < a->size; i += 16) STORE(sum + i, LOAD(x + i) + LOAD(a->change + r * a->size + i));
            x = sum;
        }
        v16 squares = (v16){};
        for (long i = 0; i < a->size; i += 16) { v16 v = LOAD(x + i); squares += v * v; }
        const float scale = 1.0f / sqrtf(sum_v16(squares) / a->size + a->eps);
        T *out = a->out + r * a->size;
        for (long i = 0; i < a->size; i += 16) STORE(out + i, LOAD(x + i) * scale * LOAD(a->weight + i));
    }
}

typedef struct {
    const T *gate_up;          /* [rows, 2 size] */
    T *out;                    /* [rows, size] */
    long rows, size;
} Gate;

/* silu(gate) * up */
void NAME(gate)(const Gate *a) {
    #pragma omp parallel for schedule(static) if (a->rows > FEW)
    for (long r = 0; r < a->rows; r++) {
        const T *gate = a->gate_up + 2 * r * a->size, *up = gate + a->size;
        for (long i = 0; i < a->size; i += 16) {
            v16 g = LOAD(gate + i);
            i16w is_negative = g < (v16){};
            u16w bits; memcpy(&bits, &g, sizeof bits);
            bits |= 0x80000000u;
            v16 minus; memcpy(&minus, &bits, sizeof minus);        /* -|g| */
            v16 e = exp_v16(minus), above = 1.0f / (1.0f + e), below = e * above;
            v16 share = select_v16(is_negative, below, above);
            STORE(a->out + r * a->size + i, g * share * LOAD(up + i));
        }
    }
}
