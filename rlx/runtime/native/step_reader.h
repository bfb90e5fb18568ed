// Reads the steps of an artifact's schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule.h"
#include "words.h"

namespace rlx {

// What a launch of a device's kernel must fit.
struct DeviceKernel {
  size_t bindings = 0;
  int64_t params = 0;  // its numbers: those of a launch, then the start of each view
};

// Reads steps; the numbers of their kernels are below `kernels`. Those of a device have launches
// that fit `device`.
class StepReader {
 public:
  // The words of the shortest step.
  static constexpr size_t kWords = 6;

  StepReader(Words& words, size_t kernels, const std::vector<DeviceKernel>* device = nullptr)
      : words_(words), kernels_(kernels), device_(device) {}

  // Each throws Error for what is malformed.
  Steps steps(int depth);
  Step step(int depth);

 private:
  Launch launch();
  void check(const DeviceKernel& kernel, const Launch& launch) const;
  If branch(int depth);
  While repeat(int depth);
  For loop(int depth);

  Words& words_;
  size_t kernels_;
  const std::vector<DeviceKernel>* device_;
};

}  // namespace rlx
