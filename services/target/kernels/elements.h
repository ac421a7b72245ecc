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

#ifdef USE_BF16
typedef bf16 T;
#define LOAD(p) load_bf16(p)
#define SCALAR(x) scalar_bf16(x)
#define ROUND(f) round_bf16(f)
#define NAME(x) x##_bf16
#else
typedef float T;
#define LOAD(p) load_f32(p)
#define SCALAR(x) (x)
#define ROUND(f) (f)
#define NAME(x) x##_f32
#endif
