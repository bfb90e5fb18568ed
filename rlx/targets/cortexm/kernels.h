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
  /* Without a branch for a shift of 0, which rounds nothing. */
  int32_t shifts = -(shift > 0), half = (int32_t)((1u << shift) >> 1);
  v = (v + ((v >> 31) & shifts) + half) >> shift;
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
  int32_t shift = p->shift, zero = p->zero, low = p->low, high = p->high;
  int32_t v[4] = {
      rlx_requantize(acc[0], multiplier[0], shift, zero, low, high),
      rlx_requantize(acc[1], multiplier[1], shift, zero, low, high),
      rlx_requantize(acc[2], multiplier[2], shift, zero, low, high),
      rlx_requantize(acc[3], multiplier[3], shift, zero, low, high)};
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
  /* Of each word the even bytes and the odd ones, as two numbers of 16 bits. */
  uint32_t v, even, first, second, part;
  const int8_t *end = x + 4 * groups;
#define RLX_ROW(sum, word)                                                             \
  "sxtb16 %[part], %[" word "]\n\t"                                                    \
  "smlad %[" sum "], %[even], %[part], %[" sum "]\n\t"                                 \
  "sxtb16 %[" word "], %[" word "], ror #8\n\t"                                        \
  "smlad %[" sum "], %[v], %[" word "], %[" sum "]\n\t"
  __asm__ volatile(
      "1:\n\t"
      "ldr %[v], [%[x]], #4\n\t"
      "ldrd %[first], %[second], [%[w]], #8\n\t"
      "sxtb16 %[even], %[v]\n\t"
      "sxtb16 %[v], %[v], ror #8\n\t"
      RLX_ROW("a", "first") RLX_ROW("b", "second")
      "ldrd %[first], %[second], [%[w]], #8\n\t"
      RLX_ROW("c", "first") RLX_ROW("d", "second")
      "cmp %[x], %[end]\n\t"
      "bne 1b"
      : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [w] "+r"(w), [v] "=&r"(v),
        [even] "=&r"(even), [first] "=&r"(first), [second] "=&r"(second), [part] "=&r"(part)
      : [end] "r"(end)
      : "cc", "memory");
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
RLX_KERNEL void rlx_row(
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

/* Elements of a row of a window. Both write up to RLX_GROUP - 1 elements more than n, over which
   comes what follows. */
RLX_INLINE int8_t *rlx_copy(int8_t *to, const int8_t *from, int32_t n) {
#if RLX_MVE
  for (int32_t i = 0; i < n; i += 16) vstrbq_s8(to + i, vldrbq_s8(from + i));
#elif __ARM_FEATURE_UNALIGNED || !__ARM_ARCH
  int8_t *end = to + n;
  for (; to < end; to += 4, from += 4) __builtin_memcpy(to, from, 4);
  return end;
#else
  for (int32_t i = 0; i < n; i++) to[i] = from[i];
#endif
  return to + n;
}

RLX_INLINE int8_t *rlx_fill(int8_t *to, int32_t n, int8_t code) {
#if RLX_MVE
  for (int32_t i = 0; i < n; i += 16) vstrbq_s8(to + i, vdupq_n_s8(code));
#else
  for (int32_t i = 0; i < n; i++) to[i] = code;
#endif
  return to + n;
}

/* The window from a row and a column on, which may lie before the first, as a row of elements. */
RLX_KERNEL void rlx_window(
    int8_t *to, const int8_t *x, int32_t top, int32_t left, const rlx_windows *g, int8_t pad) {
  int32_t line = g->taps_x * g->channels, step = g->cols * g->channels;
  int32_t first = left < 0 ? -left : 0;
  int32_t last = g->cols - left < g->taps_x ? g->cols - left : g->taps_x;
  const int8_t *from = x + (top * g->cols + left) * g->channels;
  if (first == 0 && last == g->taps_x && top >= 0 && top + g->taps_y <= g->rows) {
    for (int32_t y = g->taps_y; y > 0; y--, from += step) to = rlx_copy(to, from, line);
    return;
  }
  int32_t before = first * g->channels, after = (g->taps_x - last) * g->channels;
  for (int32_t y = top; y < top + g->taps_y; y++, from += step) {
    if (y < 0 || y >= g->rows || last <= first) {
      to = rlx_fill(to, line, pad);
      continue;
    }
    to = rlx_fill(to, before, pad);
    to = rlx_copy(to, from + before, line - before - after);
    to = rlx_fill(to, after, pad);
  }
}

/* A convolution: each window becomes a row, in `column`, of whole groups; what lies behind the last
   element is multiplied by 0. */
RLX_KERNEL void rlx_conv(
    void *out, int wide, const int8_t *x, int8_t *column, int32_t groups, int32_t outputs,
    const rlx_windows *g, const rlx_product *p) {
  int32_t bytes = wide ? 2 * outputs : outputs;
  char *to = out;
  for (int32_t oy = 0; oy < g->out_rows; oy++)
    for (int32_t ox = 0; ox < g->out_cols; ox++, to += bytes) {
      int32_t top = oy * g->stride_y - g->pad_y, left = ox * g->stride_x - g->pad_x;
      rlx_window(column, x, top, left, g, (int8_t)p->pad);
      rlx_row(to, wide, column, groups, outputs, p);
    }
}

/* The sums of 4 channels over rows of taps, from their biases on: steps from tap to tap, and from
   the end of a row to the next, of elements and of weights. */
RLX_INLINE void rlx_taps(
    int32_t acc[4], const int8_t *x, const int8_t *w, int32_t rows, int32_t taps, int32_t x_tap,
    int32_t w_tap, int32_t x_row, int32_t w_row, const int32_t *bias) {
#if RLX_MVE
  int32x4_t sums = vldrwq_s32(bias);
#else
  int32_t a = bias[0], b = bias[1], c = bias[2], d = bias[3];
#endif
  for (; rows > 0; rows--, x += x_row, w += w_row)
    for (int32_t n = taps; n > 0; n--, x += x_tap, w += w_tap) {
#if RLX_MVE
      sums = vaddq_s32(sums, vmulq_s32(vldrbq_s32(x), vldrbq_s32(w)));
#elif RLX_DSP
      uint32_t v, u, even, odd;
      __builtin_memcpy(&v, x, 4);
      __builtin_memcpy(&u, w, 4);
      __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(v));
      __asm__("sxtb16 %0, %1, ror #8" : "=r"(v) : "r"(v));
      __asm__("sxtb16 %0, %1" : "=r"(odd) : "r"(u));
      __asm__("smlabb %0, %1, %2, %0" : "+r"(a) : "r"(even), "r"(odd));
      __asm__("smlatt %0, %1, %2, %0" : "+r"(c) : "r"(even), "r"(odd));
      __asm__("sxtb16 %0, %1, ror #8" : "=r"(u) : "r"(u));
      __asm__("smlabb %0, %1, %2, %0" : "+r"(b) : "r"(v), "r"(u));
      __asm__("smlatt %0, %1, %2, %0" : "+r"(d) : "r"(v), "r"(u));
#else
      a += x[0] * w[0], b += x[1] * w[1];
      c += x[2] * w[2], d += x[3] * w[3];
#endif
    }
#if RLX_MVE
  vstrwq_s32(acc, sums);
#else
  acc[0] = a, acc[1] = b, acc[2] = c, acc[3] = d;
#endif
}

/* All channels of a window, of which the rows and columns of taps from ky0 and kx0 to before ky1 and
   kx1 lie on elements. */
RLX_KERNEL void rlx_depthwise_window(
    void *out, int wide, const int8_t *x, int32_t ky0, int32_t ky1, int32_t kx0, int32_t kx1,
    const rlx_windows *g, const rlx_product *p) {
  int32_t channels = g->channels, wide_channels = (channels + 3) & ~3, cols = kx1 - kx0;
  int32_t x_row = (g->cols - cols) * channels, w_row = (g->taps_x - cols) * wide_channels;
  const int8_t *w = p->weights + (ky0 * g->taps_x + kx0) * wide_channels;
  int32_t clipped = p->pad && (ky1 - ky0 < g->taps_y || cols < g->taps_x);
  for (int32_t n = 0; n < channels; n += 4) {
    int32_t acc[4];
    rlx_taps(
        acc, x + n, w + n, cols > 0 ? ky1 - ky0 : 0, cols, channels, wide_channels, x_row, w_row,
        p->bias + n);
    if (clipped)
      for (int32_t ky = 0; ky < g->taps_y; ky++)
        for (int32_t kx = 0; kx < g->taps_x; kx++) {
          if (ky >= ky0 && ky < ky1 && kx >= kx0 && kx < kx1) continue;
          const int8_t *own = p->weights + (ky * g->taps_x + kx) * wide_channels + n;
          for (int32_t r = 0; r < 4; r++) acc[r] += p->pad * own[r];
        }
    void *to = wide ? (void *)((int16_t *)out + n) : (void *)((int8_t *)out + n);
    rlx_store(to, wide, channels - n, acc, p->multiplier + n, p);
  }
}

/* A convolution of each channel by itself; weights are [taps, channels], of whole blocks of 4. */
RLX_KERNEL void rlx_depthwise(
    void *out, int wide, const int8_t *x, const rlx_windows *g, const rlx_product *p) {
  int32_t bytes = wide ? 2 * g->channels : g->channels;
  char *to = out;
  for (int32_t oy = 0; oy < g->out_rows; oy++) {
    int32_t top = oy * g->stride_y - g->pad_y;
    int32_t ky0 = top < 0 ? -top : 0;
    int32_t ky1 = g->rows - top < g->taps_y ? g->rows - top : g->taps_y;
    for (int32_t ox = 0; ox < g->out_cols; ox++, to += bytes) {
      int32_t left = ox * g->stride_x - g->pad_x;
      int32_t kx0 = left < 0 ? -left : 0;
      int32_t kx1 = g->cols - left < g->taps_x ? g->cols - left : g->taps_x;
      const int8_t *from = x + ((top + ky0) * g->cols + left + kx0) * g->channels;
      rlx_depthwise_window(to, wide, from, ky0, ky1, kx0, kx1, g, p);
    }
  }
}

RLX_INLINE int32_t rlx_load(const void *x, int wide, int32_t at) {
  return wide ? ((const int16_t *)x)[at] : ((const int8_t *)x)[at];
}

#if RLX_MVE || RLX_DSP
/* The greatest of each window of i8, several channels at a time. */
RLX_INLINE void rlx_max_bytes(int8_t *out, const int8_t *x, const rlx_windows *g) {
  int32_t channels = g->channels, line = g->cols * channels;
  for (int32_t oy = 0; oy < g->out_rows; oy++)
    for (int32_t ox = 0; ox < g->out_cols; ox++, out += channels) {
      const int8_t *corner = x + oy * g->stride_y * line + ox * g->stride_x * channels;
      for (int32_t n = 0; n < channels; n += RLX_GROUP) {
        const int8_t *row = corner + n;
#if RLX_MVE
        int8x16_t best = vldrbq_s8(row);
        for (int32_t ky = 0; ky < g->taps_y; ky++, row += line)
          for (int32_t kx = 0; kx < g->taps_x; kx++)
            best = vmaxq_s8(best, vldrbq_s8(row + kx * channels));
        vstrbq_p_s8(out + n, best, vctp8q((uint32_t)(channels - n)));
#else
        uint32_t best, v;
        __builtin_memcpy(&best, row, 4);
        for (int32_t ky = 0; ky < g->taps_y; ky++, row += line)
          for (int32_t kx = 0; kx < g->taps_x; kx++) {
            __builtin_memcpy(&v, row + kx * channels, 4);
            __ssub8(v, best); /* its flags say which bytes are not less */
            best = __sel(v, best);
          }
        if (channels - n >= 4)
          __builtin_memcpy(out + n, &best, 4);
        else
          for (int32_t r = 0; r < channels - n; r++) out[n + r] = (int8_t)(best >> 8 * r);
#endif
      }
    }
}
#endif

/* The greatest of each window, of i8, or of i16 where wide; there is no padding. */
RLX_KERNEL void rlx_max_pool(void *out, int wide, const void *x, const rlx_windows *g) {
#if RLX_MVE || RLX_DSP
  if (!wide) {
    rlx_max_bytes(out, x, g);
    return;
  }
#endif
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
