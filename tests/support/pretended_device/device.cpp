// An accelerator without hardware: torch's CPU build gets an allocator with counters and a limit, generators, a guard,
// pinned memory and kernels under the key KEY (CUDA or PrivateUse1). Its memory is the host's, and CPU kernels do the
// work in it; an operation on tensors of several devices is refused as a real device refuses it. device.py has the
// other half: what Python code asks of the device.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>

namespace {
using c10::Device, c10::DeviceIndex, c10::DispatchKey, c10::DispatchKeySet, c10::Stream;
constexpr auto TYPE = c10::DeviceType::KEY;
constexpr int MOST = 16, SLOTS = 64;
const DispatchKeySet GENERATOR_KEYS(DispatchKey::KEY);

// --- Memory -------------------------------------------------------------------------------------------------------
// What the processes that share a device have taken of it, in a file that they share, too.
struct Slot {
  int pid;
  int64_t bytes;
};

struct Memory {
  int64_t allocated = 0, peak = 0, reserved = 0, peak_reserved = 0, retries = 0, ooms = 0;
  std::multimap<size_t, void*> cached;
  Slot *slots = nullptr, *own = nullptr;

  int64_t taken() const {
    int64_t sum = 0;
    for (int i = 0; i < SLOTS; i++)
      if (slots[i].pid && (slots[i].pid == getpid() || !kill(slots[i].pid, 0))) sum += slots[i].bytes;
    return sum;
  }
};

std::mutex lock;
Memory memories[MOST];
int device_count = 0;
int64_t limit = 0;
double fraction = 1.0;  // of the limit that this process may take
bool started = false;
std::set<const void*> pinned;
thread_local DeviceIndex current = 0;

void start(const std::vector<std::string>& files, int64_t bytes) {
  device_count = static_cast<int>(files.size());
  limit = bytes;
  for (int i = 0; i < device_count; i++) {
    int file = open(files[i].c_str(), O_RDWR | O_CREAT, 0600);
    TORCH_CHECK(file >= 0 && !ftruncate(file, SLOTS * sizeof(Slot)), "cannot open ", files[i]);
    auto& memory = memories[i];
    memory.slots = static_cast<Slot*>(mmap(nullptr, SLOTS * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    for (int j = 0; j < SLOTS && !memory.own; j++) {
      int pid = memory.slots[j].pid;
      if ((!pid || kill(pid, 0)) && __sync_bool_compare_and_swap(&memory.slots[j].pid, pid, getpid()))
        memory.own = &memory.slots[j];
    }
    TORCH_CHECK(memory.own, "too many processes use ", files[i]);
    memory.own->bytes = 0;
  }
  started = true;
}

void release(Memory& memory) {
  for (auto& [size, block] : memory.cached) {
    free(block);
    memory.reserved -= size;
    memory.own->bytes -= size;
  }
  memory.cached.clear();
}

struct Block {
  DeviceIndex device;
  size_t size;
  void* data;
};

void give_back(void* context) {
  std::unique_ptr<Block> block(static_cast<Block*>(context));
  std::lock_guard guard(lock);
  memories[block->device].allocated -= block->size;
  memories[block->device].cached.emplace(block->size, block->data);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    Device device(TYPE, current);
    if (!bytes) return {nullptr, device};
    std::lock_guard guard(lock);
    TORCH_CHECK(started, "the device was not initialised before memory was allocated");
    auto& memory = memories[current];
    const size_t size = (bytes + 511) / 512 * 512;
    void* data = nullptr;
    if (auto found = memory.cached.find(size); found != memory.cached.end()) {
      data = found->second;
      memory.cached.erase(found);
    } else {
      auto full = [&] {
        auto bytes = static_cast<int64_t>(size);
        return limit && (memory.taken() + bytes > limit || memory.reserved + bytes > fraction * limit);
      };
      if (full()) {
        memory.retries++;
        release(memory);
      }
      if (full()) {
        memory.ooms++;
        TORCH_CHECK_WITH(
            OutOfMemoryError, false, c10::DeviceTypeName(TYPE), " out of memory. Tried to allocate ", size / (1 << 20),
            " MiB. GPU ", static_cast<int>(current), " has a total capacity of ", limit / (1 << 20), " MiB of which ",
            (limit - memory.taken()) / (1 << 20), " MiB is free.");
      }
      TORCH_CHECK(!posix_memalign(&data, 64, size), "the host has no memory left");
      memory.reserved += size;
      memory.own->bytes += size;
      memory.peak_reserved = std::max(memory.peak_reserved, memory.reserved);
    }
    memory.allocated += size;
    memory.peak = std::max(memory.peak, memory.allocated);
    return {data, new Block{current, size, data}, &give_back, device};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool initialized() override { return started; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    std::lock_guard guard(lock);
    for (int i = 0; i < device_count; i++) release(memories[i]);
  }
  void recordStream(const c10::DataPtr&, Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    TORCH_CHECK(started && device >= 0 && device < device_count, "Invalid device argument");
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& memory = memories[device];
    for (auto* each : {&stats.allocated_bytes[0], &stats.active_bytes[0]}) {
      each->current = memory.allocated;
      each->peak = memory.peak;
    }
    stats.reserved_bytes[0].current = memory.reserved;
    stats.reserved_bytes[0].peak = memory.peak_reserved;
    stats.num_alloc_retries = memory.retries;
    stats.num_ooms = memory.ooms;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex device) override {
    TORCH_CHECK(started && device >= 0 && device < device_count, "Invalid device argument");
    memories[device].peak = memories[device].allocated;
    memories[device].peak_reserved = memories[device].reserved;
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    TORCH_CHECK(started && device >= 0 && device < device_count, "Invalid device argument");
    const int64_t total = limit ? limit : int64_t(1) << 36;
    return {std::max<int64_t>(0, total - memories[device].taken()), total};
  }
} allocator;
REGISTER_ALLOCATOR(TYPE, &allocator);

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    TORCH_CHECK(!posix_memalign(&data, 64, std::max<size_t>(bytes, 1)), "the host has no memory left");
    std::lock_guard guard(lock);
    pinned.insert(data);
    return {data, data, [](void* data) {
              std::lock_guard guard(lock);
              pinned.erase(data);
              free(data);
            }, c10::DeviceType::CPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
} pinned_allocator;

// --- Generators, the guard, and the hooks by which torch's own code asks ------------------------------------------
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(DeviceIndex device) {
    device_ = Device(TYPE, device);
    key_set_ = GENERATOR_KEYS;
  }
};

const at::Generator& default_generator(DeviceIndex device) {
  static std::vector<at::Generator> all = [] {
    std::vector<at::Generator> made;
    for (int i = 0; i < MOST; i++) made.push_back(at::make_generator<Generator>(static_cast<DeviceIndex>(i)));
    return made;
  }();
  return all[device < 0 ? current : device];
}

void use(DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count, "CUDA error: invalid device ordinal");
  current = device;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return TYPE; }
  Device exchangeDevice(Device device) const override {
    Device before(TYPE, current);
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {TYPE, current}; }
  void setDevice(Device device) const override { use(device.has_index() ? device.index() : current); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  Stream getStream(Device device) const override {
    return Stream(Stream::DEFAULT, Device(TYPE, device.has_index() ? device.index() : current));
  }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  Stream getNewStream(Device device, int) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return getStream(stream.device()); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(device_count); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  double elapsedTime(void*, void*, const DeviceIndex) const override { return 0.0; }
};
C10_REGISTER_GUARD_IMPL(KEY, Guard);

template <class Base>
struct Hooks : Base {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return started; }
  void init() const override {}
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(device_count); }
  void setCurrentDevice(DeviceIndex device) const override { use(device); }
  DeviceIndex getCurrentDevice() const override { return current; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    auto before = current;
    if (device >= 0) use(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard guard(lock);
    return pinned.count(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  Device getDeviceFromPtr(void*) const override { return {TYPE, current}; }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? current : device);
  }
};

struct CudaHooks final : Hooks<at::CUDAHooksInterface> {
  explicit CudaHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  int getNumGPUs() const override { return device_count; }
  DeviceIndex current_device() const override { return current; }
  void deviceSynchronize(DeviceIndex) const override {}
};

void resize(const c10::Storage& storage, size_t bytes) {
  c10::DeviceGuard guard(storage.device());
  auto data = allocator.allocate(bytes);
  if (auto kept = std::min(bytes, storage.nbytes())) memcpy(data.mutable_get(), storage.data(), kept);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

struct PrivateHooks final : Hooks<at::PrivateUse1HooksInterface> {
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { resize(storage, bytes); }
};

// --- Kernels ------------------------------------------------------------------------------------------------------
at::Tensor on_host(const at::Tensor& tensor) {
  auto options = tensor.options().device(c10::kCPU).requires_grad(false);
  auto& storage = tensor.storage();
  auto* owner = new c10::Storage(storage);  // which an asynchronous operation may need longer than its caller
  auto forget = [](void* owner) { delete static_cast<c10::Storage*>(owner); };
  c10::Storage host(
      c10::Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(const_cast<void*>(storage.data()), owner, forget, c10::kCPU), c10::GetAllocator(c10::kCPU),
      /*resizable=*/true);
  return at::empty({0}, options).set_(host, tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<Device> device) {
  Device where = device.value_or(Device(TYPE, current));
  c10::DeviceGuard guard(where);
  auto type = c10::scalarTypeToTypeMeta(dtype.value_or(c10::get_default_dtype_as_scalartype()));
  int64_t bytes = static_cast<int64_t>(type.itemsize());
  for (auto size : sizes) bytes *= size;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocator.allocate(bytes), &allocator, true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), DispatchKeySet(DispatchKey::KEY), type);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor empty_memory_format(
    c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device> device,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  auto tensor = empty(sizes, dtype, device);
  if (format && *format != at::MemoryFormat::Contiguous) tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return tensor;
}

at::Tensor empty_strided(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  int64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); i++) elements = sizes[i] ? elements + (sizes[i] - 1) * strides[i] : 0;
  for (auto size : sizes) elements = size ? elements : 0;
  auto tensor = empty({elements}, dtype, device);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor strided(
    const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<int64_t> offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  view.unsafeGetTensorImpl()->set_storage_offset(offset.value_or(self.storage_offset()));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return view;
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) {
  auto whole = c10::DimVector(sizes.begin(), sizes.end());
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < whole.size(); i++) (whole[i] < 0 ? open : known) = whole[i] < 0 ? int64_t(i) : known * whole[i];
  if (open >= 0) whole[open] = known ? self.numel() / known : 0;
  auto host = on_host(self).view(whole);
  return strided(self, host.sizes(), host.strides(), self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return strided(self, sizes, strides, self.storage_offset());
}

void grow(const at::Tensor& self, size_t bytes) {
  auto* storage = self.storage().unsafeGetStorageImpl();
  if (bytes <= storage->nbytes()) return;
  c10::DeviceGuard guard(self.device());
  auto data = allocator.allocate(bytes);
  if (storage->nbytes()) memcpy(data.mutable_get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(bytes);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  grow(self, (self.storage_offset() + self.numel()) * self.element_size());
  return self;
}

at::Tensor& set_storage(
    at::Tensor& self, c10::Storage storage, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return self;
}

at::Tensor& set_whole(at::Tensor& self, c10::Storage storage) {
  int64_t elements = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(storage), 0, {elements}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& other) {
  return set_storage(self, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}

at::Tensor& set_nothing(at::Tensor& self) { return set_tensor(self, empty({0}, self.scalar_type(), self.device())); }

at::Tensor host_side(const at::Tensor& tensor) { return tensor.device().type() == TYPE ? on_host(tensor) : tensor; }

int64_t bytes_in = 0, bytes_out = 0;  // that crossed the bus

at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool) {
  if (self.device().type() != from.device().type()) (self.is_cpu() ? bytes_out : bytes_in) += self.nbytes();
  host_side(self).copy_(host_side(from));
  return self;
}

// The lengths and indices that these take may be on the host.
const std::set<std::string> MIXED = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
    "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::_pack_padded_sequence_backward", "aten::_ctc_loss"};

void fallback(const c10::OperatorHandle& op, DispatchKeySet, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  const auto arguments = op.schema().arguments().size();
  const auto begin = stack->size() - arguments;
  std::optional<Device> device;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // of the device, and its like on the host
  std::optional<at::Generator> generator;

  auto note = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.device().type() == TYPE) {
      TORCH_CHECK(!device || *device == tensor.device(), "Expected all tensors to be on the same device, but found at "
          "least two devices, ", *device, " and ", tensor.device(), "! (", name, ")");
      device = tensor.device();
    }
  };
  auto check = [&](const at::Tensor& tensor) {
    bool strict = name.rfind("aten::_fused_ad", 0) == 0 || name.rfind("aten::_fused_sgd", 0) == 0;
    TORCH_CHECK(!tensor.defined() || tensor.device().type() == TYPE || (tensor.dim() == 0 && !strict) || !device ||
                tensor.device().type() != c10::kCPU || MIXED.count(name), "Expected all tensors to be on the same "
                "device, but found at least two devices, ", *device, " and cpu! (", name, ")");
  };
  auto host = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != TYPE) return tensor;
    for (auto& [ours, theirs] : pairs)
      if (ours.is_same(tensor)) return theirs;
    pairs.emplace_back(tensor, on_host(tensor));
    return pairs.back().second;
  };
  std::function<void(const c10::IValue&, const std::function<void(const at::Tensor&)>&)> visit_all =
      [&](const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
        if (value.isTensor()) visit(value.toTensor());
        else if (value.isList()) for (const c10::IValue& each : value.toListRef()) visit_all(each, visit);
      };
  auto each = [&](const std::function<void(const at::Tensor&)>& visit) {
    for (auto i = begin; i < begin + arguments; i++) visit_all((*stack)[i], visit);
  };
  using Change = std::function<at::Tensor(const at::Tensor&)>;
  std::function<c10::IValue(const c10::IValue&, const Change&)> changed = [&](const c10::IValue& value, const Change& change) {
    if (value.isTensor()) return c10::IValue(change(value.toTensor()));
    if (!value.isList() || value.toListRef().empty()) return value;
    auto type = value.toList().elementType();
    if (type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::FloatType) return value;
    c10::impl::GenericList all(type);
    for (const c10::IValue& each : value.toListRef()) all.push_back(changed(each, change));
    return c10::IValue(all);
  };
  each(note);
  each(check);
  for (auto i = begin; i < begin + arguments; i++) {
    auto& value = (*stack)[i];
    if (value.isTensor() || value.isList()) {
      value = changed(value, host);
    } else if (value.isDevice()) {
      if (!device) device = value.toDevice().has_index() ? value.toDevice() : Device(TYPE, current);
      value = c10::IValue(Device(c10::kCPU));
    } else if (value.isGenerator()) {
      generator = value.toGenerator();
      TORCH_CHECK(generator->device().type() == TYPE, "Expected a '", TYPE, "' device type for generator but found '",
                  generator->device(), "'");
      value = c10::IValue();
    } else if (op.schema().arguments()[i - begin].name() == "pin_memory" && value.isBool()) value = false;
  }
  if (!device) device = Device(TYPE, current);
  // The kernels draw from the host's generator, which is lent the device's state for the call.
  const bool draws = generator || op.hasTag(at::Tag::nondeterministic_seeded);
  c10::intrusive_ptr<c10::TensorImpl> before;
  auto lent = at::detail::getDefaultCPUGenerator();
  auto owner = generator ? *generator : default_generator(device->index());
  if (draws) {
    before = lent.unsafeGetGeneratorImpl()->get_state();
    lent.unsafeGetGeneratorImpl()->set_state(*owner.unsafeGetGeneratorImpl()->get_state());
  }
  auto put_back = [&] {
    if (!draws) return;
    owner.unsafeGetGeneratorImpl()->set_state(*lent.unsafeGetGeneratorImpl()->get_state());
    lent.unsafeGetGeneratorImpl()->set_state(*before);
  };
  try {
    op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  c10::DeviceGuard guard(*device);
  for (auto& [ours, theirs] : pairs) {  // an output may have got another size
    if (theirs.storage().data() != ours.storage().data()) {
      grow(ours, theirs.storage().nbytes());
      if (theirs.storage().nbytes())
        memcpy(ours.storage().mutable_data(), theirs.storage().data(), theirs.storage().nbytes());
    }
    if (!theirs.sizes().equals(ours.sizes()) || !theirs.strides().equals(ours.strides()))
      ours.unsafeGetTensorImpl()->set_sizes_and_strides(theirs.sizes(), theirs.strides());
  }
  auto back = [&](const at::Tensor& tensor) -> at::Tensor {
    if (!tensor.defined() || tensor.device().type() != c10::kCPU) return tensor;
    for (auto& [ours, theirs] : pairs)
      if (theirs.is_same(tensor)) return ours;
    for (auto& [ours, theirs] : pairs)
      if (tensor.storage().data() && theirs.storage().data() == tensor.storage().data() && tensor.dtype() == ours.dtype())
        return strided(ours, tensor.sizes(), tensor.strides(), tensor.storage_offset());
    auto made = empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), {}, device, {});
    on_host(made).copy_(tensor);
    return made;
  };
  for (auto i = begin; i < stack->size(); i++) {
    auto& value = (*stack)[i];
    value = changed(value, back);
  }
}

// Only CUDA has kernels for these; their derivatives follow from these operations.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cx, const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  auto gates = input + hidden;
  if (input_bias && input_bias->defined()) gates = gates + *input_bias + *hidden_bias;
  auto parts = gates.chunk(4, 1);
  auto cell = parts[1].sigmoid() * cx + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * cell.tanh(), cell, gates};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& hx, const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  auto biased = [](const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
    return (bias && bias->defined() ? gates + *bias : gates).chunk(3, 1);
  };
  auto in = biased(input, input_bias), own = biased(hidden, hidden_bias);
  auto made = (in[2] + (in[0] + own[0]).sigmoid() * own[2]).tanh();
  return {made + (in[1] + own[1]).sigmoid() * (hx - made), hx};
}

TORCH_LIBRARY_IMPL(_, KEY, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, KEY, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_whole);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("copy_", &copy_);
  for (auto name : {"convolution", "convolution_overrideable", "convolution_backward"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Collectives: the host's backend does the work.
TORCH_LIBRARY_IMPL(c10d, KEY, m) {
  for (auto name : {"broadcast_", "allreduce_", "allreduce_coalesced_", "reduce_", "allgather_", "_allgather_base_",
                    "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
                    "reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_", "barrier",
                    "send", "recv_"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

#define AUTOGRAD_OF(key) Autograd##key
#define AUTOGRAD(key) AUTOGRAD_OF(key)
TORCH_LIBRARY_IMPL(aten, AUTOGRAD(KEY), m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
}
}  // namespace

#ifdef PRETENDS_CUDA
namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, ::CudaHooks)
}
#endif

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  if (TYPE == c10::DeviceType::PrivateUse1) at::RegisterPrivateUse1HooksInterface(new PrivateHooks());
  m.def("start", &start);
  m.def("count", [](int n) { device_count = n; });
  m.def("default_generator", [](int device) { return default_generator(static_cast<DeviceIndex>(device)); });
  m.def("current", [] { return static_cast<int>(current); });
  m.def("use", [](int device) { use(static_cast<DeviceIndex>(device)); });
  m.def("fraction", [](double share, int) { fraction = share; });
  m.def("resize", [](const at::Tensor& tensor, size_t bytes) { resize(tensor.storage(), bytes); });
  m.def("empty_cache", [] { allocator.emptyCache(); });
  m.def("reset_peak", [](int device) { allocator.resetPeakStats(static_cast<DeviceIndex>(device)); });
  m.def("info", [](int device) { return allocator.getMemoryInfo(static_cast<DeviceIndex>(device)); });
  m.def("stats", [](int device) {
    auto stats = allocator.getDeviceStats(static_cast<DeviceIndex>(device));
    return std::map<std::string, int64_t>{
        {"allocated", stats.allocated_bytes[0].current}, {"allocated_peak", stats.allocated_bytes[0].peak},
        {"reserved", stats.reserved_bytes[0].current}, {"reserved_peak", stats.reserved_bytes[0].peak},
        {"in", bytes_in}, {"out", bytes_out}, {"retries", stats.num_alloc_retries}, {"ooms", stats.num_ooms}};
  });
}
