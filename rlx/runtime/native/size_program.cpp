#include "size_program.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "error.h"

namespace rlx {

namespace {

constexpr int64_t kAlign = 64;
// Beyond it no memory is, and sums of a few such numbers fit 64 bits.
constexpr int64_t kMost = int64_t{1} << 60;

[[noreturn]] void refuse(const std::string& where, const std::string& found,
                         const std::string& expected) {
  throw Error("a schedule of symbolic sizes", where + " " + found, expected,
              "it was written wrongly, or the sizes are too large");
}

void require_index(const char* what, size_t index, size_t limit) {
  if (index >= limit) refuse(what, std::to_string(index), "below " + std::to_string(limit));
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) refuse("a dim", "divided by 0", "another divisor");
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

bool is_beyond(int64_t number) { return number > kMost || number < -kMost; }

int64_t apply(SizeOp op, int64_t a, int64_t b) {
  int64_t found = 0;
  bool beyond = false;
  switch (op) {
    case SizeOp::kAdd:
      beyond = __builtin_add_overflow(a, b, &found);
      break;
    case SizeOp::kMultiply:
      beyond = __builtin_mul_overflow(a, b, &found);
      break;
    case SizeOp::kFloorDivide:
      if (b != -1) return floor_divide(a, b);
      beyond = __builtin_sub_overflow(int64_t{0}, a, &found);
      break;
    case SizeOp::kMinimum:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
  if (beyond || is_beyond(found)) {
    refuse("a number", "beyond 2**60", "less: the sizes are too large");
  }
  return found;
}

bool holds(const SizeGuard& guard, int64_t found) {
  switch (guard.relation) {
    case Relation::kEqual:
      return found == guard.number;
    case Relation::kUnequal:
      return found != guard.number;
    case Relation::kAtLeast:
      return found >= guard.number;
    default:
      return found <= guard.number;
  }
}

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Buffers that are placed, by offset.
class Row {
 public:
  Row(const std::vector<BufferLife>& buffers, const std::vector<int64_t>& bytes,
      std::vector<int64_t>& offsets)
      : buffers_(buffers), bytes_(bytes), offsets_(offsets) {}

  // Places a buffer in the first gap that those in the row leave which `meets` it; where it ends.
  template <typename Meets>
  int64_t put(size_t buffer, Meets meets) {
    int64_t at = 0;
    for (size_t other : row_) {
      if (!meets(buffers_[other])) continue;
      if (at + bytes_[buffer] <= offsets_[other]) break;
      at = std::max(at, aligned(offsets_[other] + bytes_[other]));
    }
    offsets_[buffer] = at;
    const auto after = std::upper_bound(row_.begin(), row_.end(), at, [&](int64_t a, size_t b) {
      return a < offsets_[b];
    });
    row_.insert(after, buffer);
    return at + bytes_[buffer];
  }

  void drop_before(int64_t first) {
    row_.erase(std::remove_if(row_.begin(), row_.end(),
                              [&](size_t other) { return buffers_[other].last < first; }),
               row_.end());
  }

 private:
  const std::vector<BufferLife>& buffers_;
  const std::vector<int64_t>& bytes_;
  std::vector<int64_t>& offsets_;
  std::vector<size_t> row_;
};

template <size_t kRow, typename Take>
void each_row(const char* what, const std::vector<int64_t>& words, Take take) {
  if (words.size() % kRow != 0) {
    refuse(what, std::to_string(words.size()) + " words", "rows of " + std::to_string(kRow));
  }
  for (size_t at = 0; at < words.size(); at += kRow) take(words.data() + at);
}

template <typename Less>
std::vector<size_t> sorted(size_t count, Less less) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

// First fit by time of birth, larger first.
int64_t by_birth(const std::vector<BufferLife>& buffers, const std::vector<int64_t>& bytes,
                 std::vector<int64_t>& offsets) {
  Row row(buffers, bytes, offsets);
  int64_t total = 0;
  for (size_t b : sorted(buffers.size(), [&](size_t x, size_t y) {
         return std::pair(buffers[x].first, -bytes[x]) < std::pair(buffers[y].first, -bytes[y]);
       })) {
    row.drop_before(buffers[b].first);
    total = std::max(total, row.put(b, [](const BufferLife&) { return true; }));
  }
  return total;
}

// First fit by size, the largest first.
int64_t by_size(const std::vector<BufferLife>& buffers, const std::vector<int64_t>& bytes,
                std::vector<int64_t>& offsets) {
  Row row(buffers, bytes, offsets);
  int64_t total = 0;
  for (size_t b : sorted(buffers.size(), [&](size_t x, size_t y) {
         return std::pair(-bytes[x], buffers[x].first) < std::pair(-bytes[y], buffers[y].first);
       })) {
    const BufferLife& own = buffers[b];
    total = std::max(total, row.put(b, [&](const BufferLife& other) {
      return other.first <= own.last && own.first <= other.last;
    }));
  }
  return total;
}

}  // namespace

int64_t plan_arena(const std::vector<BufferLife>& buffers, const std::vector<int64_t>& bytes,
                   std::vector<int64_t>& offsets) {
  offsets.assign(buffers.size(), 0);
  int64_t total = by_birth(buffers, bytes, offsets);
  std::vector<int64_t> others(buffers.size(), 0);
  const int64_t other = by_size(buffers, bytes, others);
  if (other < total) {
    total = other;
    offsets = std::move(others);
  }
  return aligned(total);
}

SizeProgram::SizeProgram(size_t sizes, SizeRows rows) : sizes_(sizes), words_(std::move(rows.words)) {
  each_row<3>("instructions", rows.instructions, [&](const int64_t* row) {
    instructions_.push_back({static_cast<SizeOp>(row[0]), row[1], row[2]});
  });
  each_row<3>("guards", rows.guards, [&](const int64_t* row) {
    guards_.push_back({static_cast<size_t>(row[0]), static_cast<Relation>(row[1]), row[2]});
  });
  each_row<3>("buffers", rows.buffers, [&](const int64_t* row) {
    buffers_.push_back({static_cast<size_t>(row[0]), row[1], row[2]});
  });
  each_row<2>("patches", rows.patches, [&](const int64_t* row) {
    patches_.push_back({static_cast<size_t>(row[0]), static_cast<size_t>(row[1])});
  });
  std::stable_sort(patches_.begin(), patches_.end(),
                   [](const Patch& a, const Patch& b) { return a.word < b.word; });
  for (int64_t result : rows.results) results_.push_back(static_cast<size_t>(result));
  for (const SizeGuard& guard : guards_) planned_ = std::max(planned_, guard.value + 1);
  for (const BufferLife& buffer : buffers_) planned_ = std::max(planned_, buffer.bytes + 1);
  check();
}

void SizeProgram::check() const {
  const size_t count = instructions_.size(), known = sizes_ + buffers_.size() + 1;
  for (size_t i = 0; i < count; ++i) {
    const SizeInstruction& made = instructions_[i];
    if (made.op < SizeOp::kNumber || made.op > SizeOp::kMaximum) {
      refuse("an instruction", std::to_string(static_cast<int64_t>(made.op)), "a known one");
    }
    if (made.op == SizeOp::kNumber) continue;
    require_index("an operand", static_cast<size_t>(made.a),
                  made.op == SizeOp::kSize ? known : i);
    if (made.op != SizeOp::kSize) require_index("an operand", static_cast<size_t>(made.b), i);
  }
  for (const SizeGuard& guard : guards_) {
    require_index("a guard", guard.value, count);
  }
  for (const BufferLife& buffer : buffers_) {
    require_index("a buffer", buffer.bytes, count);
  }
  for (size_t i = 0; i < planned_; ++i) {  // what decides the plan does not follow from it
    const SizeInstruction& made = instructions_[i];
    if (made.op == SizeOp::kSize) require_index("a size", static_cast<size_t>(made.a), sizes_);
  }
  for (const Patch& patch : patches_) {
    require_index("a word", patch.word, words_.size());
    require_index("a word's number", patch.value, count);
  }
  for (size_t result : results_) require_index("a result", result, count);
}

std::optional<std::vector<int64_t>> SizeProgram::numbers(const std::vector<int64_t>& sizes) const {
  if (sizes.size() != sizes_) {
    refuse("sizes", std::to_string(sizes.size()), std::to_string(sizes_));
  }
  std::vector<int64_t> values, known = sizes;
  values.reserve(instructions_.size());
  for (const SizeGuard& guard : guards_) {
    // One after the other: that a divisor is not 0 may be what one before says.
    run(values, known, guard.value + 1);
    if (!holds(guard, values[guard.value])) return std::nullopt;
  }
  run(values, known, planned_);
  std::vector<int64_t> bytes, offsets;
  int64_t all = 0;
  for (const BufferLife& buffer : buffers_) {
    const int64_t found = values[buffer.bytes];
    if (found < 0) refuse("a buffer", std::to_string(found) + " bytes", "0 or more");
    bytes.push_back(found);
    all = apply(SizeOp::kAdd, all, found);  // so that no sum of them is beyond 64 bits
  }
  const int64_t total = plan_arena(buffers_, bytes, offsets);
  known.insert(known.end(), offsets.begin(), offsets.end());
  known.push_back(total);
  run(values, known, instructions_.size());
  return values;
}

std::vector<int64_t> SizeProgram::results(const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> found;
  for (size_t result : results_) found.push_back(numbers[result]);
  return found;
}

std::vector<int64_t> SizeProgram::words(const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> found = words_;
  for (const Patch& patch : patches_) found[patch.word] = numbers[patch.value];
  return found;
}

void SizeProgram::run(std::vector<int64_t>& values, const std::vector<int64_t>& sizes,
                      size_t end) const {
  for (size_t i = values.size(); i < end; ++i) {
    const SizeInstruction& made = instructions_[i];
    const auto a = static_cast<size_t>(made.a), b = static_cast<size_t>(made.b);
    if (made.op == SizeOp::kNumber) {
      values.push_back(made.a);
    } else if (made.op == SizeOp::kSize) {
      values.push_back(sizes[a]);
    } else {
      values.push_back(apply(made.op, values[a], values[b]));
    }
  }
}

}  // namespace rlx
