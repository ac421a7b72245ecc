/* Paged causal attention for CPU, the same bits for a row whatever stands beside it.
 *
 * Every (query row, head) owns its accumulators, visits keys in ascending order
 * and splits them at fixed multiples of SPLIT, so its result depends on nothing
 * but its own query, position and cached keys: not on the batch, the number of
 * draft rows, the prefill chunk or the number of threads.
 *
 * Pools, for one layer (B blocks of BLOCK positions, K kv heads, D head size):
 *   keys   [B, K, D, BLOCK]   so that one vector holds the same d of 16 keys
 *   values [B, K, BLOCK, D]
 */
#include "elements.h"

#define BLOCK 16
#define SPLIT 256           /* keys a partial result covers */
#define TILE 8              /* query vectors that share the loads of a key */
#define GROUP_BLOCKS 4      /* blocks whose scores are computed together */

/* Scores of nq query vectors against GROUP_BLOCKS blocks of keys. */
INLINE void scores_group(int nq, int D, const float *q, const T *const *keys, float *out, int stride) {
    v16 acc[TILE][GROUP_BLOCKS];
    for (int i = 0; i < nq; i++) for (int b = 0; b < GROUP_BLOCKS; b++) acc[i][b] = (v16){};
    for (int d = 0; d < D; d++) {
        v16 k[GROUP_BLOCKS];
        for (int b = 0; b < GROUP_BLOCKS; b++) k[b] = LOAD(keys[b] + d * BLOCK);
        for (int i = 0; i < nq; i++) {
            float x = q[i * D + d];
            for (int b = 0; b < GROUP_BLOCKS; b++) acc[i][b] += k[b] * x;
        }
    }
    for (int i = 0; i < nq; i++)
        for (int b = 0; b < GROUP_BLOCKS; b++) store_f32(out + i * stride + b * BLOCK, acc[i][b]);
}

/* acc[nq][D] += probabilities x values over n keys, in W vectors of D at a time. */
#define VALUES_CHUNK(W)                                                                        \
    for (int c = 0; c < D; c += 16 * W) {                                                      \
        v16 acc[TILE][W];                                                                      \
        for (int i = 0; i < nq; i++) for (int w = 0; w < W; w++) acc[i][w] = (v16){};          \
        for (int b = 0; b < blocks; b++)                                                       \
            for (int j = 0; j < BLOCK; j++) {                                                  \
                v16 v[W];                                                                      \
                for (int w = 0; w < W; w++) v[w] = LOAD(values[b] + j * D + c + 16 * w);       \
                for (int i = 0; i < nq; i++) {                                                 \
                    float x = p[i * SPLIT + b * BLOCK + j];                                    \
                    for (int w = 0; w < W; w++) acc[i][w] += v[w] * x;                         \
                }                                                                              \
            }                                                                                  \
        for (int i = 0; i < nq; i++)                                                           \
            for (int w = 0; w < W; w++) store_f32(out + i * stride + c + 16 * w, acc[i][w]);   \
    }

INLINE void weigh_values(int nq, int D, const float *p, const T *const *values, int blocks, float *out, int stride) {
    if (nq <= 4 && D % 64 == 0) { VALUES_CHUNK(4) }
    else if (D % 32 == 0) { VALUES_CHUNK(2) }
    else { VALUES_CHUNK(1) }
}

typedef struct {
    const T *query;            /* [N, H, D] */
    long query_stride;         /* elements between rows */
    const T *keys, *values;    /* pools of this layer */
    const int32_t *tables;     /* [S, table_width] block ids */
    const int32_t *positions;  /* [N] */
    const int32_t *tiles;      /* [tiles, 3]: first row, rows, sequence */
    T *out;                    /* [N, H, D] */
    float *partial;            /* [N * H, max_splits, D + 2] */
    int32_t tile_count, heads, kv_heads, head_dim, table_width, max_splits, window;
    float scale, softcap;
} Attend;

/* One split of one tile and kv head: fills the partial results of its rows. */
INLINE void attend_split(const Attend *a, int nq, int rows, int first_row, const int32_t *table, int h, int split) {
    const int D = a->head_dim, G = a->heads / a->kv_heads;
    const int row_stride = D + 2;
    float q[TILE * 256], s[TILE * SPLIT];
    const T *keys[GROUP_BLOCKS], *values[SPLIT / BLOCK];
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < G; g++) {
            const T *src = a->query + (first_row + r) * a->query_stride + (h * G + g) * D;
            float *dst = q + (r * G + g) * D;
            for (int d = 0; d < D; d++) dst[d] = SCALAR(src[d]) * a->scale;
        }
    const int last_position = a->positions[first_row + rows - 1];
    const int begin = split * SPLIT;
    int blocks = (last_position - begin) / BLOCK + 1;
    if (blocks > SPLIT / BLOCK) blocks = SPLIT / BLOCK;
    const long block_size = (long)BLOCK * D;
    for (int b = 0; b < blocks; b += GROUP_BLOCKS) {
        for (int j = 0; j < GROUP_BLOCKS; j++) {
            int at = b + j < blocks ? b + j : blocks - 1;      /* repeats are masked below */
            keys[j] = a->keys + ((long)table[begin / BLOCK + at] * a->kv_heads + h) * block_size;
        }
        scores_group(nq, D, q, keys, s + b * BLOCK, SPLIT);
    }
    for (int b = 0; b < blocks; b++)
        values[b] = a->values + ((long)table[begin / BLOCK + b] * a->kv_heads + h) * block_size;
    const int span = blocks * BLOCK;
    float top[TILE], total[TILE];
    for (int i = 0; i < nq; i++) {
        const int position = a->positions[first_row + i / G];
        const int hidden = a->window > 0 && position + 1 > a->window ? position + 1 - a->window - begin : 0;
        const int visible = position + 1 - begin;              /* keys of this split up to the row's own */
        float *x = s + i * SPLIT;
        if (a->softcap > 0) for (int j = 0; j < span; j++) x[j] = a->softcap * tanhf(x[j] / a->softcap);
        for (int j = 0; j < hidden && j < span; j++) x[j] = -INFINITY;
        for (int j = visible < 0 ? 0 : visible; j < span; j++) x[j] = -INFINITY;
        float m = -INFINITY;
        for (int j = 0; j < span; j++) m = x[j] > m ? x[j] : m;
        top[i] = m;
        if (m == -INFINITY) { total[i] = 0; memset(x, 0, span * sizeof(float)); continue; }
        v16 sum = (v16){};
        for (int j = 0; j < span; j += 16) {
            v16 e = exp_v16(load_f32(x + j) - m);
            store_f32(x + j, e);
            sum += e;
        }
        total[i] = sum_v16(sum);
    }
    float acc[TILE * 256];
    weigh_values(nq, D, s, values, blocks, acc, D);
    for (int i = 0; i < nq; i++) {
        long head = (long)(first_row + i / G) * a->heads + h * G + i % G;
        float *dst = a->partial + (head * a->max_splits + split) * row_stride;
        dst[0] = top[i]; dst[1] = total[i];
        memcpy(dst + 2, acc + i * D, D * sizeof(float));
    }
}

#define CASE(n) case n: attend_split(a, n, rows, first_row, table, h, split); break;
static void attend_task(const Attend *a, int rows, int first_row, const int32_t *table, int h, int split) {
    switch (rows * (a->heads / a->kv_heads)) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
    }
}

static void combine(const Attend *a, long head) {
    const int D = a->head_dim;
    const int position = a->positions[head / a->heads];
    const int splits = position / SPLIT + 1;
    const float *part = a->partial + head * a->max_splits * (D + 2);
    const int first = a->window > 0 && position + 1 > a->window ? (position + 1 - a->window) / SPLIT : 0;
    float m = -INFINITY, total = 0;
    for (int s = first; s < splits; s++) m = part[s * (D + 2)] > m ? part[s * (D + 2)] : m;
    float acc[256];
    for (int d = 0; d < D; d++) acc[d] = 0;
    for (int s = first; s < splits; s++) {
        const float *p = part + s * (D + 2);
        if (p[1] == 0) continue;
        const float w = expf(p[0] - m);
        total += w * p[1];
        for (int d = 0; d < D; d++) acc[d] += w * p[2 + d];
    }
    T *out = a->out + head * D;
    for (int d = 0; d < D; d++) out[d] = ROUND(acc[d] / total);
}

void NAME(attend)(const Attend *a) {
    long tasks = 0;
    for (int t = 0; t < a->tile_count; t++) {
        const int32_t *tile = a->tiles + 3 * t;
        int first = a->positions[tile[0]], last = a->positions[tile[0] + tile[1] - 1];
        int low = a->window > 0 && first + 1 > a->window ? (first + 1 - a->window) / SPLIT : 0;
        tasks += (long)(last / SPLIT + 1 - low) * a->kv_heads;
    }
    #pragma omp parallel
    {
        #pragma omp for schedule(dynamic, 1)
        for (long task = 0; task < tasks; task++) {
            long left = task;
            for (int t = 0; t < a->tile_count; t++) {
                const int32_t *tile = a->tiles + 3 * t;
                int first = a->positions[tile[0]], last = a->positions[tile[0] + tile[1] - 1];
                int low = a->window > 0 && first + 1 > a->window ? (first + 1 - a->window) / SPLIT : 0;
                long here = (long)(last / SPLIT + 1 - low) * a->kv_heads;
                if (left >= here) { left -= here; continue; }
                attend_task(a, tile[1], tile[0], a->tables + (long)tile[2] * a->table_width,
                            (int)(left % a->kv_heads), low + (int)(left / a->kv_heads));
                break;
            }
        }
        const long rows = a->tile_count ? a->tiles[3 * (a->tile_count - 1)] + a->tiles[3 * (a->tile_count - 1) + 1] : 0;
        #pragma omp for schedule(static)
        for (long head = 0; head < rows * a->heads; head++) combine(a, head);
    }
}

typedef struct {
    const T *qkv;              /* [N, (H + 2 K) * D] */
    const float *q_norm, *k_norm; /* [D] or null */
    const float *cosine, *sine;   /* [positions, rotary / 2] */
    const int32_t *positions, *slots;  /* [N]; slot = block * BLOCK + offset */
    T *query;                  /* [N, H, D] */
    T *keys, *values;          /* pools of this layer */
    int32_t rows, heads, kv_heads, head_dim, rotary;
    float eps;
} Rotate;

INLINE void prepare_head(const Rotate *a, const T *src, const float *norm, int position, float *x) {
    const int D = a->head_dim, half = a->rotary / 2;
    for (int d = 0; d < D; d++) x[d] = SCALAR(src[d]);
    if (norm) {
        float square = 0;
        for (int d = 0; d < D; d++) square += x[d] * x[d];
        float scale = 1.0f / sqrtf(square / D + a->eps);
        for (int d = 0; d < D; d++) x[d] = x[d] * scale * norm[d];
    }
    const float *c = a->cosine + (long)position * half, *s = a->sine + (long)position * half;
    for (int d = 0; d < half; d++) {
        float lo = x[d], hi = x[d + half];
        x[d] = lo * c[d] - hi * s[d];
        x[d + half] = hi * c[d] + lo * s[d];
    }
}

/* Query and key norm (where the architecture has one), rotary embedding, and the cache write. */
void NAME(rotate)(const Rotate *a) {
    const int D = a->head_dim, width = (a->heads + 2 * a->kv_heads) * D;
    #pragma omp parallel for schedule(static) if (a->rows > 4)
    for (int r = 0; r < a->rows; r++) {
        const T *row = a->qkv + (long)r * width;
        float x[256];
        for (int h = 0; h < a->heads; h++) {
            prepare_head(a, row + h * D, a->q_norm, a->positions[r], x);
            T *dst = a->query + ((long)r * a->heads + h) * D;
            for (int d = 0; d < D; d++) dst[d] = ROUND(x[d]);
        }
        const long block = a->slots[r] / BLOCK, offset = a->slots[r] % BLOCK;
        for (int h = 0; h < a->kv_heads; h++) {
            prepare_head(a, row + (a->heads + h) * D, a->k_norm, a->positions[r], x);
            T *key = a->keys + (block * a->kv_heads + h) * BLOCK * D + offset;
            for (int d = 0; d < D; d++) key[d * BLOCK] = ROUND(x[d]);
            T *value = a->values + ((block * a->kv_heads + h) * BLOCK + offset) * D;
            memcpy(value, row + (a->heads + a->kv_heads + h) * D, D * sizeof(T));
        }
    }
}
