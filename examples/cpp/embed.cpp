// How alike two sentences are, by an encoder that examples/export.py wrote. They are given as the
// token ids of their words, [CLS] and [SEP] included, since a tokenizer is not part of RLX:
//
//   embed minilm.rlx "101 7592 2088 102" "101 7632 2045 102"
#include <rlx.hpp>

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace {

// The vector, of length 1, of a row of token ids.
std::vector<float> encode(const rlx::Model& encoder, const std::vector<std::int64_t>& ids) {
  const std::vector<std::int64_t> shape = {1, static_cast<std::int64_t>(ids.size())};
  const std::vector<std::int64_t> mask(ids.size(), 1);
  return encoder.bind({shape, shape}).run<float>({ids, mask});
}

std::vector<std::int64_t> numbers(const char* text) {
  std::istringstream stream(text);
  std::vector<std::int64_t> found;
  for (std::int64_t number; stream >> number;) found.push_back(number);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s model.rlx \"ID ID ...\" \"ID ID ...\"\n", argv[0]);
    return 2;
  }
  try {
    const rlx::Model encoder(argv[1]);
    const std::vector<float> a = encode(encoder, numbers(argv[2]));
    const std::vector<float> b = encode(encoder, numbers(argv[3]));
    double product = 0;
    for (size_t i = 0; i < a.size(); ++i) product += double{a[i]} * b[i];
    std::printf("%.4f\n", product);
    return 0;
  } catch (const rlx::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
