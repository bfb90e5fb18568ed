/* Kernels of networks of integers for Cortex-M: int8 codes, exact sums in 32 bits, and requantization
   by a Q0.31 multiplier and a shift to the right (Jacob et al. 2018).

   They take no memory and call no function. Helium (M55) and the DSP extension
   (M4, M7, M33) are used where the compiler says that they are there; results are the same bits.

   Elements lie as rows, columns, channels. Weights of a product lie in blocks of 4 outputs, and in
   a block in groups of RLX_GROUP elements of each of the 4; what is missing is 0. Kernels may read
   up to 16 bytes behind an activation, and multiply what they find there by 0. */
#ifndef RLX_KERNELS_H
#define RLX_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__ARM_FEATURE_MVE) && RLX_GROUP == 16
#include <arm_mve.h>
#define RLX_MVE 1
#elif defined(__ARM_FEATURE_DSP) && RLX_GROUP == 4
#include <arm_acle.h>
#define RLX_DSP 1
#endif

#define RLX_INLINE static inline __attribute__((always_inline))
#define RLX_KERNEL static __attribute__((noinline, unused))

typedef uint32_t __attribute__((may_alias)) rlx_word;

/* Weights, and what makes codes of the sums: arrays of whole blocks of 4 outputs. */
typedef struct {
  const int8_t *weights;
  const int32_t *bias;
  const int32_t *multiplier;
  int32_t shift, low, high;
  int32_t zero, pad; /* zero points: of the results, and of what is read, which padding has */
} rlx_product;

/* Windows: the sizes of what they lie on, of a window, of the result; steps, and padding before. */
typedef struct {
  int32_t rows, cols, channels;
  int32_t taps_y, taps_x, out_rows, out_cols;
  int32_t stride_y, stride_x, pad_y, pad_x;
} rlx_windows;

/* acc * multiplier * 2^-31 * 2^-shift, rounded after each: halves up, then away from zero. */
RLX_INLINE int32_t rlx_requantize(
    int32_t acc, int32_t multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
#if RLX_DSP
  int32_t v; /* the rounded high half of (2 acc) * multiplier */
  __asm__("smmulr %0, %1, %2" : "=r"(v) : "r"(acc * 2), "r"(multiplier));
#else
  int32_t v = (int32_t)(((int64_t)acc * multiplier + (1 << 30)) >> 31);
#endif
  if (shift > 0) v = (v + (v >> 31) + (1 << (shift - 1))) >> shift;
  v += zero;
  return v < low ? low : v > high ? high : v;
}

/* n results from 4 sums on, as i8, or as i16 where wide. */
RLX_INLINE void rlx_store(
    void *out, int wide, int32_t n, const int32_t acc[4], const int32_t *multiplier,
    const rlx_product *p) {
#if RLX_MVE
  int32x4_t v = vqrdmulhq_s32(vldrwq_s32(acc), vldrwq_s32(multiplier));
  if (p->shift > 0) {
    v = vaddq_s32(v, vshrq_n_s32(v, 31));
    v = vrshlq_s32(v, vdupq_n_s32(-p->shift));
  }
  v = vaddq_n_s32(v, p->zero);
  v = vminq_s32(vmaxq_s32(v, vdupq_n_s32(p->low)), vdupq_n_s32(p->high));
  mve_pred16_t some = vctp32q((uint32_t)n);
  if (wide)
    vstrhq_p_s32((int16_t *)out, v, some);
  else
    vstrbq_p_s32((int8_t *)out, v, some);
#else
  /* Locals, since a store of bytes might otherwise change what p points to. */
  int32_t shift = p->shift, zero = p->zero, low = p->low, high = p->high, v[4];
  for (int32_t r = 0; r < 4; r++)
    v[r] = rlx_requantize(acc[r], multiplier[r], shift, zero, low, high);
  if (wide) {
    int16_t *to = out;
    to[0] = (int16_t)v[0];
    if (n > 1) to[1] = (int16_t)v[1];
    if (n > 2) to[2] = (int16_t)v[2];
    if (n > 3) to[3] = (int16_t)v[3];
  } else {
    int8_t *to = out;
    to[0] = (int8_t)v[0];
    if (n > 1) to[1] = (int8_t)v[1];
    if (n > 2) to[2] = (int8_t)v[2];
    if (n > 3) to[3] = (int8_t)v[3];
  }
#endif
}

/* The sums of 4 outputs over so many groups of elements, from their biases on. */
RLX_INLINE void rlx_dot(
    int32_t acc[4], const int8_t *x, const int8_t *w, int32_t groups, const int32_t *bias) {
  int32_t a = bias[0], b = bias[1], c = bias[2], d = bias[3];
#if RLX_MVE
  do {
    int8x16_t v = vldrbq_s8(x);
    a = vmladavaq_s8(a, v, vldrbq_s8(w));
    b = vmladavaq_s8(b, v, vldrbq_s8(w + 16));
    c = vmladavaq_s8(c, v, vldrbq_s8(w + 32));
    d = vmladavaq_s8(d, v, vldrbq_s8(w + 48));
    x += 16, w += 64;
  } while (--groups);
#elif RLX_DSP
  const rlx_word *words = (const rlx_word *)(const void *)w;
#define RLX_ROW(sum, word)                                                             \
  {                                                                                    \
    uint32_t even, odd;                                                                \
    __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(word));                                 \
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));                          \
    sum = __smlad((int16x2_t)x_even, (int16x2_t)even, sum);                            \
    sum = __smlad((int16x2_t)x_odd, (int16x2_t)odd, sum);                              \
  }
  do {
    uint32_t v, x_even, x_odd;
    __builtin_memcpy(&v, x, 4);
    __asm__("sxtb16 %0, %1" : "=r"(x_even) : "r"(v));
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(x_odd) : "r"(v));
    RLX_ROW(a, words[0])
    RLX_ROW(b, words[1])
    RLX_ROW(c, words[2])
    RLX_ROW(d, words[3])
    x += 4, words += 4;
  } while (--groups);
#undef RLX_ROW
#else
  do {
    for (int32_t i = 0; i < RLX_GROUP; i++) {
      int32_t v = x[i];
      a += v * w[i];
      b += v * w[i + RLX_GROUP];
      c += v * w[i + 2 * RLX_GROUP];
      d += v * w[i + 3 * RLX_GROUP];
    }
    x += RLX_GROUP, w += 4 * RLX_GROUP;
  } while (--groups);
#endif
  acc[0] = a, acc[1] = b, acc[2] = c, acc[3] = d;
}

/* All outputs of one row of elements. */
RLX_INLINE void rlx_row(
    void *out, int wide, const int8_t *x, int32_t groups, int32_t outputs, const rlx_product *p) {
  const int8_t *w = p->weights;
  for (int32_t n = 0; n < outputs; n += 4, w += 4 * RLX_GROUP * groups) {
    int32_t acc[4];
    rlx_dot(acc, x, w, groups, p->bias + n);
    void *to = wide ? (void *)((int16_t *)out + n) : (void *)((int8_t *)out + n);
    rlx_store(to, wide, outputs - n, acc, p->multiplier + n, p);
  }
}

/* A dense layer of so many rows of `step` elements each: also a convolution by one tap. */
RLX_KERNEL void rlx_dense(
    void *out, int wide, const int8_t *x, int32_t rows, int32_t step, int32_t groups,
    int32_t outputs, const rlx_product *p) {
  for (; rows > 0; rows--, x += step) {
    rlx_row(out, wide, x, groups, outputs, p);
    out = wide ? (void *)((int16_t *)out + outputs) : (void *)((int8_t *)out + outputs);
  }
}

/* Copies of few elements, which a call would cost more than. */
RLX_INLINE int8_t *rlx_copy(int8_t *to, const int8_t *from, int32_t n) {
#if __ARM_FEATURE_UNALIGNED || !__ARM_ARCH
  for (; n >= 4; n -= 4, to += 4, from += 4) __builtin_memcpy(to, from, 4);
#endif
  for (; n > 0; n--) *to++ = *from++;
  return to;
}

RLX_INLINE int8_t *rlx_fill(int8_t *to, int32_t n, int8_t code) {
  for (; n > 0; n--) *to++ = code;
  return to;
}

/* A convolution: each window becomes a row, in `column`, of whole groups. */
RLX_KERNEL void rlx_conv(
    void *out, int wide, const int8_t *x, int8_t *column, int32_t groups, int32_t outputs,
    const rlx_windows *g, const rlx_product *p) {
  int32_t line = g->taps_x * g->channels;
  int8_t pad = (int8_t)p->pad;
  rlx_fill(column, groups * RLX_GROUP, 0);
  for (int32_t oy = 0; oy < g->out_rows; oy++) {
    int32_t top = oy * g->stride_y - g->pad_y;
    for (int32_t ox = 0; ox < g->out_cols; ox++) {
      int32_t left = ox * g->stride_x - g->pad_x;
      int32_t first = left < 0 ? -left : 0;
      int32_t last = g->cols - left < g->taps_x ? g->cols - left : g->taps_x;
      int8_t *to = column;
      int32_t before = first * g->channels, after = (g->taps_x - last) * g->channels;
      int32_t from = (top * g->cols + left) * g->channels + before;
      for (int32_t y = top; y < top + g->taps_y; y++, from += g->cols * g->channels) {
        if (y < 0 || y >= g->rows || last <= first) {
          to = rlx_fill(to, line, pad);
          continue;
        }
        to = rlx_fill(to, before, pad);
        to = rlx_copy(to, x + from, line - before - after);
        to = rlx_fill(to, after, pad);
      }
      rlx_row(out, wide, column, groups, outputs, p);
      out = wide ? (void *)((int16_t *)out + outputs) : (void *)((int8_t *)out + outputs);
    }
  }
}

/* A convolution of each channel by itself; weights are [taps, channels], of whole blocks of 4. */
RLX_KERNEL void rlx_depthwise(
    void *out, int wide, const int8_t *x, const rlx_windows *g, const rlx_product *p) {
  int32_t wide_channels = (g->channels + 3) & ~3;
  for (int32_t oy = 0; oy < g->out_rows; oy++) {
    int32_t top = oy * g->stride_y - g->pad_y;
    int32_t ky0 = top < 0 ? -top : 0;
    int32_t ky1 = g->rows - top < g->taps_y ? g->rows - top : g->taps_y;
    for (int32_t ox = 0; ox < g->out_cols; ox++) {
      int32_t left = ox * g->stride_x - g->pad_x;
      int32_t kx0 = left < 0 ? -left : 0;
      int32_t kx1 = g->cols - left < g->taps_x ? g->cols - left : g->taps_x;
      for (int32_t n = 0; n < g->channels; n += 4) {
        int32_t acc[4];
        const int32_t *bias = p->bias + n;
#if RLX_MVE
        int32x4_t sums = vldrwq_s32(bias);
#else
        int32_t a = bias[0], b = bias[1], c = bias[2], d = bias[3];
#endif
        for (int32_t ky = ky0; ky < ky1; ky++) {
          const int8_t *from = x + ((top + ky) * g->cols + left + kx0) * g->channels + n;
          const int8_t *w = p->weights + (ky * g->taps_x + kx0) * wide_channels + n;
          for (int32_t kx = kx0; kx < kx1; kx++, from += g->channels, w += wide_channels) {
#if RLX_MVE
            sums = vaddq_s32(sums, vmulq_s32(vldrbq_s32(from), vldrbq_s32(w)));
#elif RLX_DSP
            uint32_t v, u, ve, vo, ue, uo;
            __builtin_memcpy(&v, from, 4);
            __builtin_memcpy(&u, w, 4);
            __asm__("sxtb16 %0, %1" : "=r"(ve) : "r"(v));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(vo) : "r"(v));
            __asm__("sxtb16 %0, %1" : "=r"(ue) : "r"(u));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(uo) : "r"(u));
            __asm__("smlabb %0, %1, %2, %0" : "+r"(a) : "r"(ve), "r"(ue));
            __asm__("smlabb %0, %1, %2, %0" : "+r"(b) : "r"(vo), "r"(uo));
            __asm__("smlatt %0, %1, %2, %0" : "+r"(c) : "r"(ve), "r"(ue));
            __asm__("smlatt %0, %1, %2, %0" : "+r"(d) : "r"(vo), "r"(uo));
#else
            a += from[0] * w[0], b += from[1] * w[1];
            c += from[2] * w[2], d += from[3] * w[3];
#endif
          }
        }
#if RLX_MVE
        vstrwq_s32(acc, sums);
#else
        acc[0] = a, acc[1] = b, acc[2] = c, acc[3] = d;
#endif
        if (p->pad && (ky1 - ky0 < g->taps_y || kx1 - kx0 < g->taps_x))
          for (int32_t ky = 0; ky < g->taps_y; ky++)
            for (int32_t kx = 0; kx < g->taps_x; kx++) {
              if (ky >= ky0 && ky < ky1 && kx >= kx0 && kx < kx1) continue;
              const int8_t *w = p->weights + (ky * g->taps_x + kx) * wide_channels + n;
              for (int32_t r = 0; r < 4; r++) acc[r] += p->pad * w[r];
            }
        void *to = wide ? (void *)((int16_t *)out + n) : (void *)((int8_t *)out + n);
        rlx_store(to, wide, g->channels - n, acc, p->multiplier + n, p);
      }
      out = wide ? (void *)((int16_t *)out + g->channels) : (void *)((int8_t *)out + g->channels);
    }
  }
}

RLX_INLINE int32_t rlx_load(const void *x, int wide, int32_t at) {
  return wide ? ((const int16_t *)x)[at] : ((const int8_t *)x)[at];
}

/* The greatest of each window, of i8, or of i16 where wide; there is no padding. */
RLX_KERNEL void rlx_max_pool(void *out, int wide, const void *x, const rlx_windows *g) {
  int32_t at = 0;
  for (int32_t oy = 0; oy < g->out_rows; oy++)
    for (int32_t ox = 0; ox < g->out_cols; ox++)
      for (int32_t n = 0; n < g->channels; n++, at++) {
        int32_t corner = (oy * g->stride_y * g->cols + ox * g->stride_x) * g->channels + n;
        int32_t best = rlx_load(x, wide, corner);
        for (int32_t ky = 0; ky < g->taps_y; ky++)
          for (int32_t kx = 0; kx < g->taps_x; kx++) {
            int32_t v = rlx_load(x, wide, corner + (ky * g->cols + kx) * g->channels);
            best = v > best ? v : best;
          }
        if (wide)
          ((int16_t *)out)[at] = (int16_t)best;
        else
          ((int8_t *)out)[at] = (int8_t)best;
      }
}

/* The mean of each window of i8, or of i16 where wide_x: its sum from `start` on, requantized to i8,
   or to i16 where wide. */
RLX_KERNEL void rlx_mean_pool(
    void *out, int wide, const void *x, int wide_x, const rlx_windows *g, int32_t start,
    int32_t multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
  int32_t at = 0;
  for (int32_t oy = 0; oy < g->out_rows; oy++)
    for (int32_t ox = 0; ox < g->out_cols; ox++)
      for (int32_t n = 0; n < g->channels; n++, at++) {
        int32_t corner = (oy * g->stride_y * g->cols + ox * g->stride_x) * g->channels + n;
        int32_t sum = start;
        for (int32_t ky = 0; ky < g->taps_y; ky++)
          for (int32_t kx = 0; kx < g->taps_x; kx++)
            sum += rlx_load(x, wide_x, corner + (ky * g->cols + kx) * g->channels);
        int32_t v = rlx_requantize(sum, multiplier, shift, zero, low, high);
        if (wide)
          ((int16_t *)out)[at] = (int16_t)v;
        else
          ((int8_t *)out)[at] = (int8_t)v;
      }
}

/* The place of the greatest of n results of 16 bits, of equal ones the first. */
RLX_KERNEL void rlx_argmax(int16_t *out, const int16_t *x, int32_t n) {
  int32_t best = 0;
  for (int32_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
  *out = (int16_t)best;
}

#endif
