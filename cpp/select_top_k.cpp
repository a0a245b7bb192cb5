// [Note: selecting in one pass]
// A threshold is guessed a little too low, from a sample. One pass over memory
// adds the gradient, collects the elements at or above the guess as candidates,
// and leaves there what a selected element leaves. Among the candidates, which
// are few, the exact threshold is found; those below it get their sums back.
// Where the guess was too high, fewer than k were collected: all sums are put
// back, and a second pass over them follows with a lower guess. Where it was
// far too low, the candidates' room is full: all but the k largest of them get
// their sums back, and the guess rises to what only k candidates reach. An
// element equal to the k-th of them comes too late then, since the lowest
// indices win among equals: so the guess rises above it, and an array of equal
// elements fills the room only once. Threads do the same on a piece each.
#include "select_top_k.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "find_threshold.hpp"
#include "float_environment.hpp"
#include "guess_threshold.hpp"
#include "parallel.hpp"
#include "streamed_stores.hpp"
#include "top_k_kernels.hpp"

namespace hvs::cpu {
namespace {

#include "section_writer.inl"

// Room for candidates, besides that for 2 * k.
constexpr int64_t kSpareCandidates = 8192;
// After a guess that was too high, so many times more candidates are aimed at;
// beyond the maximum, all elements are candidates.
constexpr double kMoreCandidates = 4.0;
constexpr double kMaxSurplus = 16.0;
constexpr int64_t kKeptWords = int64_t{4} << 20;  // 16 MiB

// Memory that a thread keeps from call to call: fresh pages would cost more
// than the selection.
class Scratch {
 public:
  uint32_t* reserve(int64_t num_words) {
    if (num_words > size_) {
      words_.reset();
      size_ = 0;
      words_.reset(new uint32_t[static_cast<size_t>(num_words)]);
      size_ = num_words;
    }
    return words_.get();
  }
  void shrink() {
    if (size_ > kKeptWords) {
      words_.reset();
      size_ = 0;
    }
  }

 private:
  std::unique_ptr<uint32_t[]> words_;
  int64_t size_ = 0;
};

// With these arguments, a chunk that is `distance` elements further on is read
// and written.
SelectArguments further(SelectArguments arguments, int64_t distance) {
  if (arguments.grad != nullptr) {
    arguments.grad =
        static_cast<const uint8_t*>(arguments.grad) +
        distance * (arguments.type == ElementType::kFloat32 ? 4 : 2);
  }
  arguments.residual += distance;
  arguments.accumulated += distance;
  return arguments;
}

// What one thread collects from a contiguous range of elements.
struct Piece {
  Candidates candidates;
  int64_t capacity;
  int64_t num_nonfinite;
};

class Selection {
 public:
  Selection(const SectionLayout& layout,
            const SelectArguments& arguments,
            const TopKKernels& kernels,
            int num_threads)
      : layout_(layout),
        arguments_(arguments),
        kernels_(kernels),
        num_chunks_((layout.num_elements + kChunkElements - 1) /
                    kChunkElements),
        pieces_(static_cast<size_t>(
            num_pieces(num_chunks_, kChunkElements, num_threads))) {
    const int64_t num_pieces = static_cast<int64_t>(pieces_.size());
    const int64_t piece_elements =
        (num_chunks_ + num_pieces - 1) / num_pieces * kChunkElements;
    capacity_ = std::min(piece_elements, 2 * layout.k + kSpareCandidates) +
                kChunkElements + kCandidateSlack;
  }

  int64_t scratch_words() const {
    return guess_scratch_words(layout_.num_elements) +
           2 * capacity_ * static_cast<int64_t>(pieces_.size());
  }

  SelectResult run(uint32_t* scratch) {
    guess_scratch_ = scratch;
    scratch += guess_scratch_words(layout_.num_elements);
    for (Piece& piece : pieces_) {
      piece.capacity = capacity_;
      piece.candidates.index = scratch;
      piece.candidates.sums = reinterpret_cast<float*>(scratch + capacity_);
      scratch += 2 * capacity_;
    }
    uint32_t guess =
        guess_threshold(layout_, arguments_, kernels_, 1.0, guess_scratch_);
    collect(arguments_, guess);
    SelectResult result;
    for (const Piece& piece : pieces_) {
      result.num_nonfinite += piece.num_nonfinite;
    }
    if (num_candidates() < layout_.k) {
      guess = collect_again(guess);
    }
    result.threshold = keep_largest(guess);
    write();
    return result;
  }

 private:
  int64_t num_candidates() const {
    int64_t count = 0;
    for (const Piece& piece : pieces_) {
      count += piece.candidates.count;
    }
    return count;
  }

  void collect(const SelectArguments& arguments, uint32_t guess) {
    parallel_for(num_chunks_, static_cast<int>(pieces_.size()),
                 [&](int piece, int64_t begin, int64_t end) {
                   const DefaultFloatEnvironment environment;
                   collect_piece(arguments, guess, begin, end,
                                 pieces_[static_cast<size_t>(piece)]);
                 });
  }

  void collect_piece(const SelectArguments& arguments,
                     uint32_t guess,
                     int64_t begin_chunk,
                     int64_t end_chunk,
                     Piece& piece) const {
    piece.candidates.count = 0;
    piece.num_nonfinite = 0;
    uint32_t lowest = guess;  // of the candidates
    const Target target = target_of(arguments);
    const int64_t full = piece.capacity - kChunkElements - kCandidateSlack;
    for (int64_t chunk = begin_chunk; chunk < end_chunk; ++chunk) {
      if (piece.candidates.count > full) {
        finish_streaming();
        const Threshold found =
            find_threshold({piece.candidates}, layout_.k, lowest, kernels_);
        keep(found, layout_.k - found.num_above, piece);
        lowest = found.bits;
        guess = found.bits + 1;
      }
      const int64_t begin = chunk * kChunkElements;
      const int64_t end =
          std::min(begin + kChunkElements, layout_.num_elements);
      const SelectArguments here =
          further(arguments, place_of(begin, arguments.share) - begin);
      piece.num_nonfinite += kernels_.collect(here, target, layout_.type, begin,
                                              end, guess, piece.candidates);
    }
    finish_streaming();
  }

  Target target_of(const SelectArguments& arguments) const {
    if (arguments.accumulated == arguments.residual) {
      return Target::kResidual;
    }
    return kernels_.streams &&
                   is_streamed(arguments.accumulated, layout_.num_elements,
                               arguments.share)
               ? Target::kStreamed
               : Target::kSeparate;
  }

  // After too high a guess: collects from the sums with lower ones, until
  // there are enough candidates. Returns the last guess.
  uint32_t collect_again(uint32_t guess) {
    SelectArguments again = arguments_;
    again.grad = nullptr;
    again.residual = arguments_.accumulated;
    again.hint = 0;
    double surplus = 1.0;
    while (num_candidates() < layout_.k) {
      for (Piece& piece : pieces_) {
        kernels_.keep(UINT32_MAX >> 1, 0, arguments_.share,
                      arguments_.accumulated, piece.candidates);
      }
      surplus *= kMoreCandidates;
      const uint32_t lower =
          guess_threshold(layout_, again, kernels_, surplus, guess_scratch_);
      guess = surplus > kMaxSurplus || lower >= guess ? 0 : lower;
      collect(again, guess);
    }
    return guess;
  }

  // Keeps what is above the threshold, and the first `num_ties` equal to it.
  // Returns how many of those there were, if not all are kept anyway.
  int64_t keep(const Threshold& threshold,
               int64_t num_ties,
               Piece& piece) const {
    const int64_t count = piece.candidates.count;
    int64_t ties_end = threshold.num_equal == num_ties ? count : 0;
    int64_t seen = 0;
    while (ties_end < count && seen < num_ties) {
      const float sum = piece.candidates.sums[ties_end++];
      seen += (bits_of(sum) & 0x7FFFFFFFu) == threshold.bits;
    }
    kernels_.keep(threshold.bits, ties_end, arguments_.share,
                  arguments_.accumulated, piece.candidates);
    return seen;
  }

  // Keeps the k largest of all candidates, and returns their threshold.
  uint32_t keep_largest(uint32_t guess) {
    std::vector<Candidates> lists;
    for (const Piece& piece : pieces_) {
      lists.push_back(piece.candidates);
    }
    const Threshold found = find_threshold(lists, layout_.k, guess, kernels_);
    int64_t num_ties = layout_.k - found.num_above;
    for (Piece& piece : pieces_) {
      num_ties -= keep(found, num_ties, piece);
    }
    return found.bits;
  }

  void write() const {
    SectionWriter writer(layout_, arguments_.section);
    for (const Piece& piece : pieces_) {
      writer.write(piece.candidates);
    }
  }

  const SectionLayout& layout_;
  const SelectArguments& arguments_;
  const TopKKernels& kernels_;
  int64_t num_chunks_;
  std::vector<Piece> pieces_;
  int64_t capacity_;
  uint32_t* guess_scratch_ = nullptr;
};

}  // namespace

SelectResult select_top_k(const SectionLayout& layout,
                          const SelectArguments& arguments,
                          int num_threads,
                          InstructionSet instruction_set) {
  thread_local Scratch scratch;
  const DefaultFloatEnvironment environment;
  const TopKKernels& kernels = top_k_kernels(instruction_set);
  Selection selection(layout, arguments, kernels, num_threads);
  const SelectResult result =
      selection.run(scratch.reserve(selection.scratch_words()));
  scratch.shrink();
  return result;
}

}  // namespace hvs::cpu
