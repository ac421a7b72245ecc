/* Token ids near the largest logit + Gumbel noise of a position: see services/sampling/noise.py, whose words
 * these are. The scores are rough; who asks decides among those near the best in full precision.
 * Built once for each element type with the other kernels, though nothing here depends on it.
 */
#include "elements.h"

#define LARGEST_U (1.0f - 1.0f / 65536)   /* beyond, fp32 can hardly tell u from 1 */

typedef struct {
    const float *logits;       /* [count] */
    const int64_t *ids;        /* [count] token ids, or null: 0, 1, 2, ... */
    float *scores;             /* [count], scratch */
    int64_t *near;             /* [count]: indices, ascending */
    long count, num_near;      /* num_near is the answer's length */
    uint32_t first, second;    /* words of key and position */
    float slack;
} Draw;

INLINE u16w mix(u16w x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* ln x for normal x > 0; absolute error below 1e-4. */
INLINE v16 log_v16(v16 x) {
    u16w bits; memcpy(&bits, &x, sizeof bits);
    const u16w shifted = bits - 0x3f3504f3u;                /* sqrt(1/2): mantissas in [sqrt(1/2), sqrt(2)) */
    i16w exponent; memcpy(&exponent, &shifted, sizeof exponent);
    exponent >>= 23;
    bits = (shifted & 0x007fffffu) + 0x3f3504f3u;
    v16 m; memcpy(&m, &bits, sizeof m);
    const v16 z = (m - 1.0f) / (m + 1.0f), w = z * z;       /* ln m = 2 artanh z */
    return __builtin_convertvector(exponent, v16) * 0.69314718f + 2.0f * z * (1.0f + w * (1.0f / 3 + w * 0.2f));
}

INLINE v16 gumbel(u16w bits) {
    v16 u = (__builtin_convertvector(bits, v16) + 0.5f) * 0x1p-32f;
    const v16 largest = (v16){} + LARGEST_U;
    u = select_v16(u < largest, u, largest);
    const i16w is_small = u < 0x1p-6f;
    const v16 series = u * (1.0f + u * (0.5f + u * (1.0f / 3))), direct = -log_v16(1.0f - u);
    return -log_v16(select_v16(is_small, series, direct));
}

void NAME(draw)(Draw *a) {
    float best = -INFINITY;
    long i = 0;
    v16 top = (v16){} - INFINITY;
    const u16w lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (; i + 16 <= a->count; i += 16) {
        u16w ids;
        if (a->ids) for (int j = 0; j < 16; j++) ids[j] = (uint32_t)a->ids[i + j];
        else ids = lanes + (uint32_t)i;
        v16 score = load_f32(a->logits + i) + gumbel(mix(mix(ids + a->first) ^ a->second));
        store_f32(a->scores + i, score);
        top = select_v16(score > top, score, top);
    }
    for (int j = 0; j < 16; j++) best = top[j] > best ? top[j] : best;
    for (; i < a->count; i++) {
        u16w id = (u16w){} + (a->ids ? (uint32_t)a->ids[i] : (uint32_t)i);
        a->scores[i] = a->logits[i] + gumbel(mix(mix(id + a->first) ^ a->second))[0];
        best = a->scores[i] > best ? a->scores[i] : best;
    }
    a->num_near = 0;
    for (i = 0; i < a->count; i++) if (a->scores[i] >= best - a->slack) a->near[a->num_near++] = i;
}
