/* An example for a debugger or an emulator with semihosting: codes of images are read of the file
   codes.bin, results are written to results.bin; the last line says how many images and SysTicks. */
#include "model.h"

static int call(int op, const void *arg) {
  register int r0 __asm__("r0") = op;
  register const void *r1 __asm__("r1") = arg;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static int open_file(const char *name, int length, int mode) {
  const uint32_t a[3] = {(uint32_t)(uintptr_t)name, (uint32_t)mode, (uint32_t)length};
  return call(0x01, a);
}

/* How many bytes were not read or written. */
static int move(int op, int file, const void *data, uint32_t bytes) {
  const uint32_t a[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, bytes};
  return call(op, a);
}

static void say(const char *text, uint32_t n) {
  char b[12];
  int i = 11;
  b[i] = 0;
  do {
    b[--i] = (char)('0' + n % 10);
    n /= 10;
  } while (n);
  call(0x04, text);
  call(0x04, b + i);
}

void leave(int code) {
  const uint32_t a[2] = {0x20026, (uint32_t)code};
  if (code) say("stopped by ", (uint32_t)code);
  call(0x20, a);
  for (;;) {
  }
}

int main(void) {
  int in = open_file("codes.bin", 9, 1), out = open_file("results.bin", 11, 5);
  uint32_t images = 0, ticks = 0;
  if (in < 0 || out < 0) return 3;
  while (move(0x06, in, model_input(), MODEL_INPUT_BYTES) == 0) {
    uint32_t before = *(volatile uint32_t *)0xe000e018;
    const void *results = model_run();
    ticks += (before - *(volatile uint32_t *)0xe000e018) & 0xffffff;
    if (!results) return 5; /* a fault */
    if (move(0x05, out, results, MODEL_OUTPUT_BYTES) != 0) return 4;
    images++;
  }
  say("images ", images);
  say(" ticks ", ticks);
  call(0x04, "\n");
  return 0;
}
