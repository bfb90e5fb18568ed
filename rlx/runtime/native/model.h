// A model: an artifact on this machine, ready to run at any sizes that one of its variants takes. Used
// from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "artifact.h"
#include "program.h"
#include "sized_schedule.h"
#include "weights.h"

namespace rlx {

// The program for some sizes, and what its faults mean.
struct SizedProgram {
  std::unique_ptr<Program> program;
  const std::vector<Site>* sites = nullptr;  // the model's
};

using Shapes = std::vector<std::vector<int64_t>>;

class Model {
 public:
  // `owner` keeps the artifact's bytes alive. Throws Error for code of another machine or target.
  Model(Artifact artifact, std::shared_ptr<void> owner);

  const std::vector<Symbol>& symbols() const { return artifact_.symbols; }
  const std::vector<Signature>& params() const { return artifact_.params; }
  const std::vector<Signature>& inputs() const { return artifact_.inputs; }
  const std::vector<Signature>& outputs() const { return artifact_.outputs; }

  // The program for inputs of these shapes, in order. A variant's code is loaded when it first serves
  // sizes, and those whose params are packed alike share their weights. Throws Error for shapes that
  // do not fit the inputs, and for sizes that no variant takes.
  SizedProgram bind(const Shapes& shapes);

  // Uses the memory at `data` in place as a param; `owner` keeps it alive.
  void set_param(size_t index, const void* data, std::shared_ptr<void> owner);

  // As Weights::release_when_packed, for all of them.
  void release_when_packed(Constant file);

 private:
  struct Param {
    const void* data = nullptr;
    std::shared_ptr<void> owner;
  };

  struct Loaded {
    Variant variant;
    std::vector<uintptr_t> addresses;  // of its kernels
    std::optional<SizedSchedule> sized;
    std::shared_ptr<Weights> weights;  // null until it is loaded
  };

  std::vector<int64_t> sizes_of(const Shapes& shapes) const;
  static SizedProgram program(const Loaded& variant, Schedule schedule, Kernels kernels);
  void load(Loaded& variant);
  std::set<std::shared_ptr<Weights>> distinct_weights() const;
  // Whether the weights of a loaded variant serve another one, with kernels at these addresses.
  static bool packs_alike(const Loaded& loaded, const Variant& variant,
                          const std::vector<uintptr_t>& addresses);

  std::mutex mutex_;
  Artifact artifact_;
  std::shared_ptr<void> owner_;
  std::vector<Loaded> variants_;  // those that run here
  std::map<const std::byte*, std::shared_ptr<const ElfObject>> objects_;  // by where their part is
  std::vector<Param> values_;
  Constant file_;
};

}  // namespace rlx
