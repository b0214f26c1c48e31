// Corpora of the fuzz targets, for with_corpus and make_corpus:
//   fuzz_corpus targets                     prints the targets' names
//   fuzz_corpus seeds TARGET DIRECTORY      writes the seeds that a program can make
//   fuzz_corpus check TARGET FILE.hex       fails unless a corpus has these seeds
//   fuzz_corpus unpack FILE.hex DIRECTORY   writes the inputs of a corpus, a file each
//   fuzz_corpus choose CONTROL BYTES SEEDS  prints a corpus of BYTES of text at most: all files in
//                                           the directory SEEDS, and of the others those that reach
//                                           the most code that none before them does. CONTROL is
//                                           what libFuzzer's -merge_control_file says of all.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "tests/fuzz/corpus_text.h"
#include "tests/fuzz/seeds.h"

namespace {

namespace fs = std::filesystem;
using furrow::fuzz::Corpus;
using furrow::fuzz::CorpusBytes;
using furrow::fuzz::CorpusReader;

int fail(const std::string& why) {
  std::fprintf(stderr, "fuzz_corpus: %s\n", why.c_str());
  return 1;
}

int write_all(const Corpus& corpus, const fs::path& directory) {
  for (const auto& [name, bytes] : corpus) {
    std::ofstream file(directory / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) return fail("cannot write " + (directory / name).string());
  }
  return 0;
}

// Nothing: it was said why.
std::optional<Corpus> seeds_of(const std::string& target) {
  Corpus corpus;
  if (furrow::fuzz::wire_seeds(target, corpus) || furrow::fuzz::media_seeds(target, corpus)) {
    return corpus;
  }
  fail("there is no target " + target);
  return std::nullopt;
}
std::optional<Corpus> read(const fs::path& text) {
  std::ifstream in(text);
  CorpusReader reader;
  std::optional<Corpus> corpus;
  if (!in) {
    fail("cannot read " + text.string());
  } else if (!(corpus = reader.read(in))) {
    fail(text.string() + ", " + reader.error());
  }
  return corpus;
}

int seeds(const std::string& target, const fs::path& directory) {
  const auto made = seeds_of(target);
  return made ? write_all(*made, directory) : 1;
}

int unpack(const fs::path& text, const fs::path& directory) {
  const auto corpus = read(text);
  return corpus ? write_all(*corpus, directory) : 1;
}

// What a program changed means another input now: the corpus is to be made anew.
int check(const std::string& target, const fs::path& text) {
  const auto made = seeds_of(target);
  const auto corpus = read(text);
  if (!made || !corpus) return 1;
  for (const auto& [name, bytes] : *made) {
    const auto there = corpus->find(name);
    if (there != corpus->end() && there->second == bytes) continue;
    return fail(text.string() + ": [" + name + "] is not what it should be: run " +
                "tests/fuzz/make_corpus " + target);
  }
  return 0;
}

struct Candidate {
  fs::path file;
  std::set<std::uint32_t> edges;
  std::string text;
};

// The number of files, of those that another run merged before, their names; then of each, by its
// number, the features that it has: eight for each edge, by how often it is taken.
bool read_control(std::istream& in, std::vector<Candidate>& out) {
  std::size_t count = 0, before = 0, at = 0;
  in >> count >> before;
  for (in.ignore(); out.size() < count;) {
    out.emplace_back();
    std::string name;
    if (!std::getline(in, name)) return false;
    out.back().file = name;
  }
  for (std::string line, word; std::getline(in, line);) {
    std::istringstream words(line);
    words >> word;
    if (word != "FT") continue;
    if (!(words >> at) || at >= out.size()) return false;
    for (std::uint32_t feature; words >> feature;) out[at].edges.insert(feature / 8);
  }
  return count != 0;
}

std::string name_of(const fs::path& file, bool is_seed) {
  constexpr std::size_t kDigits = 12;  // of the hash that libFuzzer names it by
  const std::string name = file.filename().string();
  return is_seed ? name : name.substr(0, kDigits);
}

class Choice {
 public:
  explicit Choice(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  void take(const Candidate& taken, bool is_seed) {
    reached_.insert(taken.edges.begin(), taken.edges.end());
    bytes_ += taken.text.size();
    taken_.insert(taken.text);
    texts_[is_seed ? 0 : 1].push_back(taken.text);
  }
  // An input may be there under two names, and reach something else when it runs again.
  bool fits(const Candidate& candidate) const {
    return bytes_ + candidate.text.size() <= bytes_max_ && !taken_.contains(candidate.text);
  }
  // How many edges that nothing reached yet it has for each byte.
  double value_of(const Candidate& candidate) const {
    const auto gained = std::ranges::count_if(
        candidate.edges, [&](std::uint32_t edge) { return !reached_.contains(edge); });
    return static_cast<double>(gained) / static_cast<double>(candidate.text.size());
  }
  void take_best_of(const std::vector<const Candidate*>& others) {
    while (true) {
      const Candidate* best = nullptr;
      double best_value = 0;
      for (const Candidate* candidate : others) {
        const double value = fits(*candidate) ? value_of(*candidate) : 0;
        if (value <= best_value) continue;
        best = candidate;
        best_value = value;
      }
      if (best == nullptr) return;
      take(*best, false);
    }
  }
  void print() {
    for (std::vector<std::string>& half : texts_) {
      std::ranges::sort(half);
      for (const std::string& text : half) std::fputs(text.c_str(), stdout);
    }
  }

 private:
  const std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::set<std::uint32_t> reached_;
  std::set<std::string> taken_;        // their texts
  std::vector<std::string> texts_[2];  // the seeds', and the others'
};

int choose(const fs::path& control, std::size_t bytes_max, const fs::path& seeds_directory) {
  std::ifstream in(control);
  std::vector<Candidate> candidates;
  if (!read_control(in, candidates)) return fail("cannot make sense of " + control.string());
  Choice choice(bytes_max);
  std::vector<const Candidate*> others;
  for (Candidate& candidate : candidates) {
    std::ifstream file(candidate.file, std::ios::binary);
    if (!file) return fail("cannot read " + candidate.file.string());
    const CorpusBytes content{std::istreambuf_iterator<char>(file), {}};
    const bool is_seed = candidate.file.parent_path() == seeds_directory;
    candidate.text = furrow::fuzz::corpus_text(name_of(candidate.file, is_seed), content);
    if (is_seed) {
      if (!choice.fits(candidate)) return fail("the seeds alone are too long");
      choice.take(candidate, true);
    } else {
      others.push_back(&candidate);
    }
  }
  choice.take_best_of(others);
  choice.print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "targets") {
    for (const char* const target : furrow::fuzz::kFuzzTargets) std::puts(target);
    return 0;
  }
  if (args.size() == 3 && args[0] == "seeds") return seeds(args[1], args[2]);
  if (args.size() == 3 && args[0] == "check") return check(args[1], args[2]);
  if (args.size() == 3 && args[0] == "unpack") return unpack(args[1], args[2]);
  if (args.size() == 4 && args[0] == "choose") return choose(args[1], std::stoul(args[2]), args[3]);
  std::fprintf(stderr,
               "usage: fuzz_corpus targets | seeds TARGET DIRECTORY | check TARGET FILE.hex |\n"
               "       unpack FILE.hex DIRECTORY | choose CONTROL BYTES SEEDS\n");
  return 2;
}
