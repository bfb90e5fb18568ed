#include "cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif (defined(__aarch64__) || defined(__riscv)) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/prctl.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rlx {

#if defined(__x86_64__)

namespace {

enum Register { kEax, kEbx, kEcx, kEdx };

// What the system must save across context switches for a feature to be usable.
enum class State { kNone, kAvx, kAvx512, kAmx };

struct Feature {
  const char* name;
  uint32_t leaf, subleaf;
  Register reg;
  int bit;
  State state;
};

constexpr Feature kFeatures[] = {
    {"sse3", 1, 0, kEcx, 0, State::kNone},
    {"pclmul", 1, 0, kEcx, 1, State::kNone},
    {"ssse3", 1, 0, kEcx, 9, State::kNone},
    {"fma", 1, 0, kEcx, 12, State::kAvx},
    {"cx16", 1, 0, kEcx, 13, State::kNone},
    {"sse4.1", 1, 0, kEcx, 19, State::kNone},
    {"sse4.2", 1, 0, kEcx, 20, State::kNone},
    {"movbe", 1, 0, kEcx, 22, State::kNone},
    {"popcnt", 1, 0, kEcx, 23, State::kNone},
    {"aes", 1, 0, kEcx, 25, State::kNone},
    {"avx", 1, 0, kEcx, 28, State::kAvx},
    {"f16c", 1, 0, kEcx, 29, State::kAvx},
    {"sse", 1, 0, kEdx, 25, State::kNone},
    {"sse2", 1, 0, kEdx, 26, State::kNone},
    {"bmi", 7, 0, kEbx, 3, State::kNone},
    {"avx2", 7, 0, kEbx, 5, State::kAvx},
    {"bmi2", 7, 0, kEbx, 8, State::kNone},
    {"avx512f", 7, 0, kEbx, 16, State::kAvx512},
    {"avx512dq", 7, 0, kEbx, 17, State::kAvx512},
    {"avx512ifma", 7, 0, kEbx, 21, State::kAvx512},
    {"avx512cd", 7, 0, kEbx, 28, State::kAvx512},
    {"avx512bw", 7, 0, kEbx, 30, State::kAvx512},
    {"avx512vl", 7, 0, kEbx, 31, State::kAvx512},
    {"avx512vbmi", 7, 0, kEcx, 1, State::kAvx512},
    {"avx512vbmi2", 7, 0, kEcx, 6, State::kAvx512},
    {"gfni", 7, 0, kEcx, 8, State::kNone},
    {"avx512vnni", 7, 0, kEcx, 11, State::kAvx512},
    {"avx512bitalg", 7, 0, kEcx, 12, State::kAvx512},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, State::kAvx512},
    {"amx-bf16", 7, 0, kEdx, 22, State::kAmx},
    {"avx512fp16", 7, 0, kEdx, 23, State::kAvx512},
    {"amx-tile", 7, 0, kEdx, 24, State::kAmx},
    {"amx-int8", 7, 0, kEdx, 25, State::kAmx},
    {"avxvnni", 7, 1, kEax, 4, State::kAvx},
    {"avx512bf16", 7, 1, kEax, 5, State::kAvx512},
    {"amx-fp16", 7, 1, kEax, 21, State::kAmx},
    {"lzcnt", 0x80000001, 0, kEcx, 5, State::kNone},
};

bool cpuid_bit(const Feature& feature) {
  uint32_t registers[4] = {};
  if (!__get_cpuid_count(feature.leaf, feature.subleaf, &registers[kEax], &registers[kEbx],
                         &registers[kEcx], &registers[kEdx])) {
    return false;
  }
  return (registers[feature.reg] >> feature.bit & 1) != 0;
}

// The register states that the system saves (XCR0), or 0 when it uses no XSAVE.
uint64_t saved_states() {
  constexpr Feature kOsXSave = {"", 1, 0, kEcx, 27, State::kNone};
  if (!cpuid_bit(kOsXSave)) return 0;
  uint32_t low, high;
  // Not _xgetbv: it would need a target attribute for an instruction that was just checked for.
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux hands out the 8 KiB of tile state on request only.
bool request_amx() {
#if defined(__linux__)
  constexpr int kArchReqXcompPerm = 0x1023, kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
#else
  return false;
#endif
}

bool is_saved(State state, uint64_t states) {
  constexpr uint64_t kAvxStates = 0x6, kAvx512States = 0xe6, kAmxStates = 0x60000;
  switch (state) {
    case State::kNone:
      return true;
    case State::kAvx:
      return (states & kAvxStates) == kAvxStates;
    case State::kAvx512:
      return (states & kAvx512States) == kAvx512States;
    case State::kAmx: {
      static const bool granted = request_amx();
      return (states & kAmxStates) == kAmxStates && granted;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> cpu_features() {
  const uint64_t states = saved_states();
  std::vector<std::string> found;
  for (const Feature& feature : kFeatures) {
    if (cpuid_bit(feature) && is_saved(feature.state, states)) found.push_back(feature.name);
  }
  return found;
}

#elif defined(__aarch64__) && defined(__linux__)

namespace {

struct Feature {
  const char* name;
  unsigned long type;  // of the auxiliary vector's entry
  int bit;
};

constexpr Feature kFeatures[] = {
    {"neon", AT_HWCAP, 1},     {"aes", AT_HWCAP, 3},       {"crc", AT_HWCAP, 7},
    {"lse", AT_HWCAP, 8},      {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},      {"fp16fml", AT_HWCAP, 23},
    {"sve2", AT_HWCAP2, 1},    {"i8mm", AT_HWCAP2, 13},    {"bf16", AT_HWCAP2, 14},
    {"sme", AT_HWCAP2, 23},
};

// The bits of an SVE register in this process, which the system may hold below the machine's; 0
// without SVE. Headers before Linux 4.15 do not name the request.
int sve_bits() {
  constexpr int kGetVectorLength = 51, kBytes = 0xffff;
  const int found = prctl(kGetVectorLength, 0, 0, 0, 0);
  return found < 0 ? 0 : 8 * (found & kBytes);
}

}  // namespace

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
  for (const Feature& feature : kFeatures) {
    if ((getauxval(feature.type) >> feature.bit & 1) != 0) found.push_back(feature.name);
  }
  // Code for SVE is made for one length.
  if (const int bits = sve_bits(); bits > 0) found.push_back("sve" + std::to_string(bits));
  return found;
}

#elif defined(__riscv) && defined(__linux__)

// Linux tells by a bit a letter which extensions there are.
std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
  for (const char letter : {'m', 'a', 'f', 'd', 'c', 'v'}) {
    if ((getauxval(AT_HWCAP) >> (letter - 'a') & 1) != 0) found.emplace_back(1, letter);
  }
  return found;
}

#else

// Every 64-bit Arm has these; what else there is, this system does not tell in a portable way.
std::vector<std::string> cpu_features() { return {"neon"}; }

#endif

}  // namespace rlx
