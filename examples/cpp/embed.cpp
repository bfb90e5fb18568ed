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
    rlx_tensor ids, vector;
    require(rlx_input(loaded, 0, &ids));
    require(rlx_output(loaded, 0, &vector));
    tokens_ = static_cast<size_t>(ids.shape[1]);
    dim_ = static_cast<size_t>(vector.shape[1]);
  }

  // The vector, of length 1, of a row of token ids.
  std::vector<float> encode(std::vector<int64_t> ids) {
    if (ids.size() > tokens_) {
      throw std::runtime_error("a sentence has at most " + std::to_string(tokens_) + " tokens");
    }
    std::vector<int64_t> mask(ids.size(), 1);
    ids.resize(tokens_);
    mask.resize(tokens_);
    std::vector<float> vector(dim_);
    const rlx_buffer inputs[] = {{ids.data(), tokens_ * sizeof(int64_t)},
                                 {mask.data(), tokens_ * sizeof(int64_t)}};
    const rlx_buffer output = {vector.data(), dim_ * sizeof(float)};
    require(rlx_run(model_.get(), inputs, &output));
    return vector;
  }

 private:
  std::unique_ptr<rlx_model, decltype(&rlx_free)> model_{nullptr, &rlx_free};
  size_t tokens_ = 0, dim_ = 0;
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
