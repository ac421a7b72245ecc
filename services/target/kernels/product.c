/* Y = X W^T + b for few rows against a large packed weight, the same bits for a row in any company.
 *
 * Every output element is one chain of multiply-adds over k in ascending order,
 * whatever the number of rows: rows are only grouped for the sake of speed.
 *
 * Packed weight: panels of PANEL outputs, each holding its k in order, so that
 * one pass streams it from memory once:
 *   with bf16 dot products  [panel, K / 32, PANEL / 16, 16 pairs of k, 16 outputs, 2]
 *   otherwise               [panel, K, PANEL]
 * K and the outputs are padded with zeros.
 */
#include "elements.h"

#if defined(USE_BF16) && defined(__AMX_BF16__) && defined(__linux__)
#define USE_AMX 1
#endif
#if defined(USE_BF16) && (defined(USE_AMX) || defined(__AVX512BF16__))
#define USE_PAIRS 1
#include <immintrin.h>
#endif
#ifdef USE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define PANEL 32
#define DEPTH 32            /* K is padded to a multiple of it */

static long padded(long n, long to) { return (n + to - 1) / to * to; }

/* Where weight[o][k] lies. */
INLINE long place(long o, long k, long depth) {
    const long panel = o / PANEL * PANEL * depth;
    o %= PANEL;
#ifdef USE_PAIRS
    return panel + k / DEPTH * DEPTH * PANEL + o / 16 * DEPTH * 16 + k % DEPTH / 2 * 32 + o % 16 * 2 + k % 2;
#else
    return panel + k * PANEL + o;
#endif
}

void NAME(pack)(const T *weight, long outputs, long inputs, T *packed) {
    const long depth = padded(inputs, DEPTH);
    for (long o = 0; o < padded(outputs, PANEL); o++)
        for (long k = 0; k < depth; k++)
            packed[place(o, k, depth)] = o < outputs && k < inputs ? weight[o * inputs + k] : (T)0;
}

/* Rows of the weight as they were before packing: an embedding that is tied to the head. */
void NAME(gather)(const T *packed, const int64_t *rows, long count, long inputs, T *out) {
    const long depth = padded(inputs, DEPTH);
    for (long r = 0; r < count; r++)
        for (long k = 0; k < inputs; k++) out[r * inputs + k] = packed[place(rows[r], k, depth)];
}

typedef struct {
    const T *x;                /* [rows padded to 16, K padded]; zeros beyond what is real */
    const T *packed;
    const T *bias;             /* [outputs] or null */
    T *y;                      /* [rows, outputs] */
    long rows, outputs, depth; /* depth: K padded */
} Product;

INLINE void write_row(const Product *a, long row, long first, const float *values) {
    long count = a->outputs - first < PANEL ? a->outputs - first : PANEL;
    T *dst = a->y + row * a->outputs + first;
    if (a->bias) for (long o = 0; o < count; o++) dst[o] = ROUND(values[o] + SCALAR(a->bias[first + o]));
    else for (long o = 0; o < count; o++) dst[o] = ROUND(values[o]);
}

#ifdef USE_AMX

typedef struct { uint8_t palette, start, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } Tiles;

/* Linux grants the tile registers to a process that asks; 0 when it does. */
int NAME(prepare)(void) { return (int)syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }

INLINE void panel_rows(const Product *a, const T *panel, long first, long row, int pair) {
    float out[4][16][16];
    _tile_zero(0); _tile_zero(1);
    if (pair) { _tile_zero(2); _tile_zero(3); }
    const T *x = a->x + row * a->depth;
    for (long k = 0; k < a->depth; k += DEPTH) {
        const T *w = panel + k * PANEL;
        _tile_loadd(4, x + k, a->depth * 2);
        _tile_loadd(6, w, 64);
        _tile_loadd(7, w + DEPTH * 16, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (pair) {
            _tile_loadd(5, x + 16 * a->depth + k, a->depth * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, out[0], 64); _tile_stored(1, out[1], 64);
    if (pair) { _tile_stored(2, out[2], 64); _tile_stored(3, out[3], 64); }
    for (int r = 0; r < (pair ? 32 : 16) && row + r < a->rows; r++) {
        float values[PANEL];
        memcpy(values, out[r / 16 * 2][r % 16], 64);
        memcpy(values + 16, out[r / 16 * 2 + 1][r % 16], 64);
        write_row(a, row + r, first, values);
    }
}

void NAME(multiply)(const Product *a) {
    const long panels = padded(a->outputs, PANEL) / PANEL;
    #pragma omp parallel
    {
        Tiles tiles = {.palette = 1};
        for (int i = 0; i < 8; i++) { tiles.bytes[i] = 64; tiles.rows[i] = 16; }
        _tile_loadconfig(&tiles);
        #pragma omp for schedule(static)
        for (long p = 0; p < panels; p++) {
            const T *panel = a->packed + p * PANEL * a->depth;
            for (long row = 0; row < a->rows; row += 32) {
                if (a->rows - row > 16) panel_rows(a, panel, p * PANEL, row, 1);
                else panel_rows(a, panel, p * PANEL, row, 0);
            }
        }
        _tile_release();
    }
}

#else

int NAME(prepare)(void) { return 0; }

#define ROWS 4                 /* rows that share the loads of a weight */

#ifdef USE_PAIRS
INLINE void panel_rows(const Product *a, const T *panel, long first, long row, int rows) {
    __m512 acc[ROWS][2];
    for (int r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    const T *x = a->x + row * a->depth;
    for (long k = 0; k < a->depth; k += 2) {
        const T *w = panel + k / DEPTH * DEPTH * PANEL + k % DEPTH / 2 * 32;
        __m512bh w0 = (__m512bh)_mm512_loadu_si512(w), w1 = (__m512bh)_mm512_loadu_si512(w + DEPTH * 16);
        for (int r = 0; r < rows; r++) {
            int32_t both; memcpy(&both, x + r * a->depth + k, 4);
            __m512bh v = (__m512bh)_mm512_set1_epi32(both);
            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], v, w0);
            acc[r][1] = _mm512_dpbf16_ps(acc[r][1], v, w1);
        }
    }
    for (int r = 0; r < rows; r++) {
        float values[PANEL];
        _mm512_storeu_ps(values, acc[r][0]); _mm512_storeu_ps(values + 16, acc[r][1]);
        write_row(a, row + r, first, values);
    }
}
#else
INLINE void panel_rows(const Product *a, const T *panel, long first, long row, int rows) {
    v16 acc[ROWS][2];
    for (int r = 0; r < rows; r++) acc[r][0] = acc[r][1] = (v16){};
    const T *x = a->x + row * a->depth;
    for (long k = 0; k < a->depth; k++) {
        v16 w0 = LOAD(panel + k * PANEL), w1 = LOAD(panel + k * PANEL + 16);
        for (int r = 0; r < rows; r++) {
            float v = SCALAR(x[r * a->depth + k]);
            acc[r][0] += w0 * v;
            acc[r][1] += w1 * v;
        }
    }
    for (int r = 0; r < rows; r++) {
        float values[PANEL];
        store_f32(values, acc[r][0]); store_f32(values + 16, acc[r][1]);
        write_row(a, row + r, first, values);
    }
}
#endif

void NAME(multiply)(const Product *a) {
    const long panels = padded(a->outputs, PANEL) / PANEL;
    #pragma omp parallel for schedule(static)
    for (long p = 0; p < panels; p++) {
        const T *panel = a->packed + p * PANEL * a->depth;
        for (long row = 0; row < a->rows; row += ROWS)
            switch (a->rows - row) {
                case 1: panel_rows(a, panel, p * PANEL, row, 1); break;
                case 2: panel_rows(a, panel, p * PANEL, row, 2); break;
                case 3: panel_rows(a, panel, p * PANEL, row, 3); break;
                default: panel_rows(a, panel, p * PANEL, row, 4);
            }
    }
}

#endif
