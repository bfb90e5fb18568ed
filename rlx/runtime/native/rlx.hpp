// RLX from C++17: rlx.h with owners, exceptions, and buffers that know their element type.
//
//   rlx::Model model("model.rlx");
//   std::vector<float> x = {1, 2, 3, 4};
//   std::vector<float> y = model.run<float>({x});
//
// It is this header alone; programs link what C programs link. Every call may throw rlx::Error. What
// may run in parallel is said in rlx.h: a model may be run from any number of threads at once.
#ifndef RLX_HPP_
#define RLX_HPP_

#include <rlx.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlx {
// The runtime has names of its own in rlx; these are others.
inline namespace cpp {

// A call that failed, with what rlx_last_error says.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument, a file or a machine that cannot be used.
class Refused : public Error {
 public:
  using Error::Error;
};

// A run met data that has no result.
class Fault : public Error {
 public:
  using Error::Error;
};

// Throws what a status means.
inline void check(rlx_status status) {
  if (status == RLX_FAULT) throw Fault(rlx_last_error());
  if (status != RLX_OK) throw Refused(rlx_last_error());
}

// The name of an element type, as Python has it.
inline const char* name_of(rlx_dtype dtype) {
  static constexpr const char* names[] = {"f16", "bf16", "f32", "f64", "i8",   "i16", "i32", "i64",
                                          "u8",  "u16",  "u32", "u64", "bool", "c64", "c128",
                                          "f8e4m3fn", "f8e5m2"};
  return names[dtype];
}

// Whether elements of C++'s type T are those of an element type. C++17 has no type for floats of 16
// and 8 bits: std::uint16_t and std::uint8_t have their bits.
template <class T>
constexpr bool holds(rlx_dtype dtype) {
  if (std::is_same_v<T, float>) return dtype == RLX_F32;
  if (std::is_same_v<T, double>) return dtype == RLX_F64;
  if (std::is_same_v<T, bool>) return dtype == RLX_BOOL;
  if (std::is_same_v<T, std::complex<float>>) return dtype == RLX_C64;
  if (std::is_same_v<T, std::complex<double>>) return dtype == RLX_C128;
  if (!std::is_integral_v<T>) return false;
  if (sizeof(T) == 2 && std::is_unsigned_v<T> && (dtype == RLX_F16 || dtype == RLX_BF16)) return true;
  if (sizeof(T) == 1 && std::is_unsigned_v<T> && (dtype == RLX_F8E4M3FN || dtype == RLX_F8E5M2)) {
    return true;
  }
  constexpr rlx_dtype with_sign[] = {RLX_I8, RLX_I16, RLX_I32, RLX_I64};
  constexpr rlx_dtype without[] = {RLX_U8, RLX_U16, RLX_U32, RLX_U64};
  constexpr int power = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return dtype == (std::is_signed_v<T> ? with_sign : without)[power];
}

// What a param, an input or an output is; it does not need its model.
struct Tensor {
  std::string name;
  rlx_dtype dtype;
  std::vector<std::int64_t> shape;  // -1 for a dim that has no size yet: Model::bind gives it one
  std::size_t bytes;
};

// Elements that someone else owns, to be read: a std::vector, a std::array, a std::span, or any other
// object with data() and size().
class View {
 public:
  template <class T>
  View(const T* data, std::size_t size)  // NOLINT
      : buffer_{const_cast<T*>(data), size * sizeof(T)}, holds_(&cpp::holds<T>) {}

  template <class Range, class = decltype(std::declval<const Range&>().data())>
  View(const Range& range) : View(range.data(), range.size()) {}  // NOLINT

  bool holds(rlx_dtype dtype) const { return holds_(dtype); }
  const rlx_buffer& buffer() const { return buffer_; }

 private:
  rlx_buffer buffer_;
  bool (*holds_)(rlx_dtype);
};

// The same, to be written.
class Span : public View {
 public:
  template <class T, class = std::enable_if_t<!std::is_const_v<T>>>
  Span(T* data, std::size_t size) : View(data, size) {}  // NOLINT

  template <class Range, class = std::enable_if_t<!std::is_const_v<
                             std::remove_pointer_t<decltype(std::declval<Range&>().data())>>>>
  Span(Range&& range) : View(range.data(), range.size()) {}  // NOLINT
};

// An artifact that is loaded. It can be moved, and ends with its owner.
class Model {
 public:
  // Loads the artifact in a file.
  explicit Model(const std::string& path) : Model(made([&](rlx_model** model) {
    return rlx_load(path.c_str(), model);
  })) {}

  // The same from memory, which is copied.
  static Model from_memory(const void* data, std::size_t bytes) {
    return made([&](rlx_model** model) { return rlx_load_memory(data, bytes, model); });
  }

  std::vector<Tensor> inputs() const { return listed(rlx_num_inputs, rlx_input); }
  std::vector<Tensor> outputs() const { return listed(rlx_num_outputs, rlx_output); }
  std::vector<Tensor> params() const { return listed(rlx_num_params, rlx_param); }

  // A model for inputs of given shapes, which shares code and params with this one.
  Model bind(const std::vector<std::vector<std::int64_t>>& shapes) const {
    const std::vector<Tensor> wanted = inputs();
    require_count("shapes", shapes.size(), wanted.size());
    std::vector<const std::int64_t*> rows;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      require_count("dims of the input '" + wanted[i].name + "'", shapes[i].size(),
                    wanted[i].shape.size());
      rows.push_back(shapes[i].data());
    }
    return made([&](rlx_model** model) { return rlx_bind(get(), rows.data(), model); });
  }

  // Sets a param to values, which are copied.
  void set_param(const std::string& name, View values) {
    for (const Tensor& param : params()) {
      if (param.name == name) require_type("param", param, values);
    }
    check(rlx_set_param(get(), name.c_str(), values.buffer().data, values.buffer().bytes));
  }

  // Runs into memory of the caller.
  void run(const std::vector<View>& inputs, const std::vector<Span>& outputs) const {
    const std::vector<rlx_buffer> in = buffers("input", inputs, this->inputs());
    const std::vector<rlx_buffer> out = buffers("output", outputs, this->outputs());
    check(rlx_run(get(), in.data(), out.data()));
  }

  // Runs a model of one output, whose elements are T's.
  template <class T>
  std::vector<T> run(const std::vector<View>& inputs) const {
    const std::vector<Tensor> outputs = this->outputs();
    require_count("outputs taken", 1, outputs.size());
    std::vector<T> result(outputs[0].bytes / sizeof(T));
    run(inputs, {Span(result)});
    return result;
  }

  // What rlx.h calls this model.
  rlx_model* get() const { return model_.get(); }

 private:
  explicit Model(rlx_model* model) : model_(model) {}

  template <class Make>
  static Model made(const Make& make) {
    rlx_model* model = nullptr;
    check(make(&model));
    return Model(model);
  }

  std::vector<Tensor> listed(std::size_t (*count)(const rlx_model*),
                             rlx_status (*get_one)(const rlx_model*, std::size_t,
                                                   rlx_tensor*)) const {
    std::vector<Tensor> found;
    for (std::size_t i = 0; i < count(get()); ++i) {
      rlx_tensor one;
      check(get_one(get(), i, &one));
      found.push_back({one.name, one.dtype, {one.shape, one.shape + one.rank}, one.bytes});
    }
    return found;
  }

  static void require_count(const std::string& what, std::size_t found, std::size_t expected) {
    if (found == expected) return;
    throw Refused(what + ": found " + std::to_string(found) + ", expected " +
                  std::to_string(expected));
  }

  static void require_type(const std::string& role, const Tensor& tensor, const View& given) {
    if (given.holds(tensor.dtype)) return;
    throw Refused(role + " '" + tensor.name + "': found elements of another type, expected " +
                  name_of(tensor.dtype));
  }

  template <class Given>
  static std::vector<rlx_buffer> buffers(const std::string& role, const std::vector<Given>& given,
                                         const std::vector<Tensor>& wanted) {
    require_count(role + "s", given.size(), wanted.size());
    std::vector<rlx_buffer> found;
    for (std::size_t i = 0; i < given.size(); ++i) {
      require_type(role, wanted[i], given[i]);
      found.push_back(given[i].buffer());
    }
    return found;
  }

  struct End {
    void operator()(rlx_model* model) const { rlx_free(model); }
  };

  std::unique_ptr<rlx_model, End> model_;
};

// Sets the number of threads of the process.
inline void set_threads(std::int64_t threads) { check(rlx_set_threads(threads)); }

}  // namespace cpp
}  // namespace rlx

#endif  // RLX_HPP_
