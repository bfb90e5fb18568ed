// How alike two sentences are, by an encoder that examples/export.py wrote. They are given as the
// token ids of their words, [CLS] and [SEP] included, since a tokenizer is not part of RLX:
//
//   embed minilm.rlx "101 7592 2088 102" "101 7632 2045 102"
#include <rlx.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void require(rlx_status status) {
  if (status != RLX_OK) throw std::runtime_error(rlx_last_error());
}

class Encoder {
 public:
  explicit Encoder(const char* path) {
    rlx_model* loaded = nullptr;
    require(rlx_load(path, &loaded));
    model_.reset(loaded);
  }

  // The vector, of length 1, of a row of token ids.
  std::vector<float> encode(std::vector<int64_t> ids) {
    const int64_t shape[] = {1, static_cast<int64_t>(ids.size())};
    const int64_t* shapes[] = {shape, shape};
    rlx_model* bound = nullptr;
    require(rlx_bind(model_.get(), shapes, &bound));
    const Model model(bound, &rlx_free);
    rlx_tensor result;
    require(rlx_output(bound, 0, &result));
    std::vector<int64_t> mask(ids.size(), 1);
    std::vector<float> vector(result.bytes / sizeof(float));
    const rlx_buffer inputs[] = {{ids.data(), ids.size() * sizeof(int64_t)},
                                 {mask.data(), ids.size() * sizeof(int64_t)}};
    const rlx_buffer output = {vector.data(), result.bytes};
    require(rlx_run(bound, inputs, &output));
    return vector;
  }

 private:
  using Model = std::unique_ptr<rlx_model, decltype(&rlx_free)>;

  Model model_{nullptr, &rlx_free};
};

std::vector<int64_t> numbers(const char* text) {
  std::istringstream stream(text);
  std::vector<int64_t> found;
  for (int64_t number; stream >> number;) found.push_back(number);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s model.rlx \"ID ID ...\" \"ID ID ...\"\n", argv[0]);
    return 2;
  }
  try {
    Encoder encoder(argv[1]);
    const std::vector<float> a = encoder.encode(numbers(argv[2]));
    const std::vector<float> b = encoder.encode(numbers(argv[3]));
    double product = 0;
    for (size_t i = 0; i < a.size(); ++i) product += double{a[i]} * b[i];
    std::printf("%.4f\n", product);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
