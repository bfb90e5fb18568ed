/* What a bare Cortex-M needs before main: vectors, memory, the units that compile options ask for;
   and what a program without a C library needs of one. SysTick counts down from 2^24 - 1. */
#include <stddef.h>
#include <stdint.h>

extern uint32_t _data_load, _data, _data_end, _bss, _bss_end, _stack;
int main(void);
void reset(void);
void leave(int code);

/* Compilers may call these wherever something is copied. */
void *memcpy(void *to, const void *from, size_t n) {
  uint8_t *d = to;
  const uint8_t *s = from;
  while (n--) *d++ = *s++;
  return to;
}

void *memset(void *to, int byte, size_t n) {
  uint8_t *d = to;
  while (n--) *d++ = (uint8_t)byte;
  return to;
}

static void fault(void) { leave(2); }

void reset(void) {
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
  *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* CPACR: the FPU, first of all */
  __asm__ volatile("dsb\nisb");
#endif
  for (uint32_t *s = &_data_load, *d = &_data; d < &_data_end;) *d++ = *s++;
  for (uint32_t *d = &_bss; d < &_bss_end;) *d++ = 0;
  *(volatile uint32_t *)0xe000e014 = 0xffffff;
  *(volatile uint32_t *)0xe000e018 = 0;
  *(volatile uint32_t *)0xe000e010 = 5;
  leave(main());
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    &_stack, (void *)reset, (void *)fault, (void *)fault,
    (void *)fault, (void *)fault, (void *)fault, (void *)fault};
