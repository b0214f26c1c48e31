// The seeds of the fuzz targets: what a program can make of their corpora (fuzz_corpus.cc). Each is
// one thing as it should be, or one that once was wrong, so that mutation starts from everything
// that a target's code can do.
#pragma once

#include "tests/fuzz/corpus_text.h"

namespace furrow::fuzz {

constexpr const char* kFuzzTargets[] = {"batch_fuzz",  "discovery_fuzz",  "emu_layout_fuzz",
                                        "files_fuzz",  "initiator_fuzz",  "metadata_fuzz",
                                        "pdu_fuzz",    "pool_fuzz",       "summary_fuzz",
                                        "target_fuzz", "zone_header_fuzz"};

// Adds those of `target`, a program's name. False: it is of another kind.
bool wire_seeds(std::string_view target, Corpus& out);
bool media_seeds(std::string_view target, Corpus& out);

}  // namespace furrow::fuzz
