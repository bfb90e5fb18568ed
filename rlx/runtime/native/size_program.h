// A schedule whose numbers are expressions over sizes: its guards, its arena and its words for sizes
// that a call brings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rlx {

// A straight line of instructions, each of which makes one number; rlx/schedule/size_program.py
// writes it.
enum class SizeOp : int64_t { kNumber, kSize, kAdd, kMultiply, kFloorDivide, kMinimum, kMaximum };

struct SizeInstruction {
  SizeOp op = SizeOp::kNumber;
  int64_t a = 0, b = 0;  // a number, the index of a size, or the indices of instructions before
};

enum class Relation : int64_t { kEqual, kUnequal, kAtLeast, kAtMost };

struct SizeGuard {
  size_t value = 0;  // an instruction
  Relation relation = Relation::kEqual;
  int64_t number = 0;
};

// A buffer of the arena: its bytes, by an instruction, and the first and last step that touches it.
struct BufferLife {
  size_t bytes = 0;
  int64_t first = 0, last = 0;
};

// A number that is put in the place of a word.
struct Patch {
  size_t word = 0, value = 0;
};

// A program as rlx/schedule/sizes.py writes it: rows of words, of so many each as a row's struct has
// members.
struct SizeRows {
  std::vector<int64_t> instructions, guards, buffers, words, patches, results;
};

// The sizes of calls come first, then the offsets of the buffers, and last the size of the arena.
class SizeProgram {
 public:
  // Throws Error unless every index is one of what comes before it, and rows are whole.
  SizeProgram(size_t sizes, SizeRows rows);

  // The numbers that the instructions make, or nothing where the sizes do not meet the guards. Throws
  // Error for another number of sizes, and where a number does not fit 64 bits or is divided by 0.
  std::optional<std::vector<int64_t>> numbers(const std::vector<int64_t>& sizes) const;

  // What the numbers make: the results, and for who reads steps their words.
  std::vector<int64_t> results(const std::vector<int64_t>& numbers) const;
  std::vector<int64_t> words(const std::vector<int64_t>& numbers) const;

  const std::vector<Patch>& patches() const { return patches_; }  // by word
  size_t result_count() const { return results_.size(); }

 private:
  void check() const;
  // Carries out the instructions up to `end` that `values` has not.
  void run(std::vector<int64_t>& values, const std::vector<int64_t>& sizes, size_t end) const;

  size_t sizes_;
  std::vector<SizeInstruction> instructions_;
  std::vector<SizeGuard> guards_;
  std::vector<BufferLife> buffers_;
  std::vector<int64_t> words_;
  std::vector<Patch> patches_;
  std::vector<size_t> results_;
  size_t planned_ = 0;  // instructions that guards and buffers' bytes need
};

// The arena for buffers of these bytes: rlx/schedule/arena.py says how. Returns its size.
int64_t plan_arena(const std::vector<BufferLife>& buffers, const std::vector<int64_t>& bytes,
                   std::vector<int64_t>& offsets);

}  // namespace rlx
