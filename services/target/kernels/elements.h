/* Element types and vectors that the kernels share. Compiled once for each storage type T:
 * bf16 with USE_BF16, else float. Arithmetic is always fp32. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float v16 __attribute__((vector_size(64)));
typedef uint32_t u16w __attribute__((vector_size(64)));
typedef int32_t i16w __attribute__((vector_size(64)));
typedef uint16_t h16 __attribute__((vector_size(32)));
typedef uint16_t bf16;

#define INLINE static inline __attribute__((always_inline))

INLINE v16 load_f32(const float *p) { v16 v; memcpy(&v, p, sizeof v); return v; }
INLINE void store_f32(float *p, v16 v) { memcpy(p, &v, sizeof v); }
INLINE v16 select_v16(i16w mask, v16 yes, v16 no) {  /* mask: all bits of a lane or none */
    i16w a, b; memcpy(&a, &yes, sizeof a); memcpy(&b, &no, sizeof b);
    a = (a & mask) | (b & ~mask);
    v16 v; memcpy(&v, &a, sizeof v); return v;
}
INLINE v16 load_bf16(const bf16 *p) {
    h16 h; memcpy(&h, p, sizeof h);
    u16w w = __builtin_convertvector(h, u16w) << 16;
    v16 v; memcpy(&v, &w, sizeof v); return v;
}
INLINE float scalar_bf16(bf16 x) { uint32_t w = (uint32_t)x << 16; float f; memcpy(&f, &w, 4); return f; }
INLINE bf16 round_bf16(float f) {                    /* to nearest, ties to even */
    uint32_t w; memcpy(&w, &f, 4);
    return (bf16)((w + 0x7fffu + ((w >> 16) & 1u)) >> 16);
}
INLINE void store_bf16(bf16 *p, v16 v) {             /* rounded likewise */
    u16w w; memcpy(&w, &v, sizeof w);
    h16 h = __builtin_convertvector((w + 0x7fffu + ((w >> 16) & 1u)) >> 16, h16);
    memcpy(p, &h, sizeof h);
}

/* exp for x <= 0, by range reduction and a polynomial; error about 1 ulp. */
INLINE v16 exp_v16(v16 x) {
    const v16 low = (v16){} - 87.0f;
    i16w tiny = x < low;
    v16 t = x * 1.44269504f;
    v16 shifted = t + 12582912.0f;                   /* 1.5 * 2^23: rounds to an integer */
    v16 n = shifted - 12582912.0f;
    v16 r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    v16 p = (v16){} + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    i16w bits = (__builtin_convertvector(n, i16w) + 127) << 23;
    v16 scale; memcpy(&scale, &bits, sizeof scale);
    v16 y = p * scale;
    i16w yi; memcpy(&yi, &y, sizeof yi);
    yi &= ~tiny;
    memcpy(&y, &yi, sizeof y);
    return y;
}

INLINE float sum_v16(v16 v) {
    float s[16]; store_f32(s, v);
    for (int w = 8; w; w >>= 1) for (int i = 0; i < w; i++) s[i] += s[i + w];
    return s[0];
}

#ifdef USE_BF16
typedef bf16 T;
#define LOAD(p) load_bf16(p)
#define STORE(p, v) store_bf16(p, v)
#define SCALAR(x) scalar_bf16(x)
#define ROUND(f) round_bf16(f)
#define NAME(x) x##_bf16
#else
typedef float T;
#define LOAD(p) load_f32(p)
#define STORE(p, v) store_f32(p, v)
#define SCALAR(x) (x)
#define ROUND(f) (f)
#define NAME(x) x##_f32
#endif
