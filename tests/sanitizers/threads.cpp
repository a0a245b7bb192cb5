// Runs every kernel on 2 to 8 threads, for ThreadSanitizer, and from several
// threads at a time, as ranks in one process do; what they write must be what
// one thread writes.
//
//   PROGRAM ROUNDS
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "add_rows.hpp"
#include "checksum.hpp"
#include "cpu_sections.hpp"
#include "fuzz_target.hpp"
#include "pack_rows.hpp"
#include "row_header.hpp"
#include "sections.hpp"
#include "select_top_k.hpp"
#include "unpack_rows.hpp"

namespace hvs::fuzz {
namespace {

// Enough that 8 threads get a piece each: parallel.hpp
constexpr int64_t kNumRows = 8 * 1024;
constexpr int64_t kNumFeatures = 129;
constexpr int64_t kNumElements = kNumRows * kNumFeatures;
constexpr int64_t kNumSelected = kNumElements / 50;
constexpr int kMaxThreads = 8;
constexpr int kNumCallers = 2;

// How a kernel is run.
struct Way {
  cpu::InstructionSet instruction_set;
  int num_threads;
};

template <typename Element>
void append_all(const std::vector<Element>& from, Bytes& to) {
  append(from.data(), from.size() * sizeof(Element), to);
}

// Packs rows, unpacks them, and adds them in pairs.
Bytes run_rows(const std::vector<float>& numbers, int bits, const Way& way) {
  std::vector<uint8_t> packed(static_cast<size_t>(
      kNumRows * (kHeaderBytes + code_bytes(kNumFeatures, bits))));
  cpu::pack_rows({numbers.data(), cpu::ElementType::kFloat32, kNumRows,
                  kNumFeatures, kNumFeatures, nullptr, kNumRows, bits,
                  cpu::RowCode::kMinMax, 7, packed.data()},
                 way.num_threads, way.instruction_set);
  std::vector<uint16_t> rows(numbers.size());
  cpu::unpack_rows({packed.data(), kNumRows, kNumFeatures, bits, nullptr,
                    kNumRows, rows.data(), cpu::ElementType::kBFloat16},
                   way.num_threads, way.instruction_set);
  std::vector<int64_t> order;
  std::vector<int64_t> targets;
  std::vector<int64_t> starts = {0};
  for (int64_t target = 0; target < kNumRows / 2; ++target) {
    order.push_back(target);
    order.push_back(kNumRows - 1 - target);
    targets.push_back(target);
    starts.push_back(2 * target + 2);
  }
  std::vector<float> sums(numbers.size() / 2);
  cpu::add_rows(
      {packed.data(), kNumRows, kNumFeatures, bits, nullptr, order.data(),
       kNumRows, targets.data(), starts.data(), kNumRows / 2, sums.data(),
       kNumRows / 2, cpu::ElementType::kFloat32},
      way.num_threads, way.instruction_set);
  Bytes result;
  append_all(packed, result);
  append_all(rows, result);
  append_all(sums, result);
  return result;
}

// Selects elements, and adds up two sections of them.
Bytes run_sections(const std::vector<float>& numbers,
                   ValueType type,
                   const Way& way) {
  const SectionLayout layout(kNumElements, kNumSelected, type);
  std::vector<uint8_t> rows(static_cast<size_t>(2 * layout.nbytes));
  std::vector<float> residual(numbers.size(), 0.5f);
  for (int64_t row = 0; row < 2; ++row) {
    cpu::select_top_k(
        layout,
        {numbers.data(), cpu::ElementType::kFloat32, residual.data(), 1.0f, 0,
         residual.data(), rows.data() + row * layout.nbytes},
        way.num_threads, way.instruction_set);
  }
  std::vector<float> sums(numbers.size());
  Sections sections = {};
  sections.rows = rows.data();
  sections.row_bytes = layout.nbytes;
  sections.num_elements = kNumElements;
  sections.type = type;
  sections.num_shares = 1;
  sections.ks = {kNumSelected, kNumSelected};
  sections.is_skipped = {0, 0};
  sections.array = sums.data();
  sections.array_type = cpu::ElementType::kFloat32;
  int64_t report[2];
  cpu::add_selected({sections}, 0.5f, way.num_threads, way.instruction_set,
                    report);
  expect(report[0] == -1, "sections that are right");
  const uint64_t checksum =
      cpu::checksum(reinterpret_cast<const uint8_t*>(numbers.data()),
                    kNumElements / 2, way.num_threads, way.instruction_set);
  Bytes result;
  append(&checksum, sizeof(checksum), result);
  append_all(rows, result);
  append_all(residual, result);
  append_all(sums, result);
  return result;
}

// One caller's work: numbers of its own, all kernels, all ways.
void run_caller(uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(static_cast<size_t>(kNumElements));
  for (float& number : numbers) {
    number = random.number();
  }
  const int bits = 1 << random.below(4);
  const ValueType type =
      random.below(2) == 0 ? ValueType::kFloat32 : ValueType::kBFloat16;
  const Way plain = {cpu::InstructionSet::kBaseline, 1};
  const Bytes rows = run_rows(numbers, bits, plain);
  const Bytes sections = run_sections(numbers, type, plain);
  for (const auto instruction_set : instruction_sets()) {
    const int num_threads = 2 + static_cast<int>(random.below(kMaxThreads - 1));
    const Way way = {instruction_set, num_threads};
    expect(run_rows(numbers, bits, way) == rows,
           "the rows that one thread writes");
    expect(run_sections(numbers, type, way) == sections,
           "the sections and sums that one thread writes");
  }
}

void run_round(uint64_t round) {
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < kNumCallers; ++caller) {
    callers.emplace_back(run_caller, round * kNumCallers + caller);
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
}

}  // namespace
}  // namespace hvs::fuzz

int main(int count, char** arguments) {
  hvs::fuzz::expect(count == 2, "the number of rounds");
  const uint64_t num_rounds = std::strtoull(arguments[1], nullptr, 10);
  for (uint64_t round = 0; round < num_rounds; ++round) {
    hvs::fuzz::run_round(round);
  }
  std::printf("rounds: %llu\n", static_cast<unsigned long long>(num_rounds));
  return 0;
}
