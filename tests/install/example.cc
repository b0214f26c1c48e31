// Embeds a page store: keeps one page and reads it back. usage: example DEVICE-URI
#include <cstdio>
#include <span>
#include <string_view>

#include "engine/embedded_pool.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::puts("usage: example DEVICE-URI"), 2;
  furrow::EmbeddedPool::CreateOptions make;
  make.size_bytes = 256 << 20;
  make.volume.name = "pages";
  const auto pool = furrow::EmbeddedPool::open(argv[1], make);
  if (!pool) return std::puts(pool.status().describe().c_str()), 1;
  auto pages = (*pool)->store("pages");
  if (!pages) return std::puts(pages.status().describe().c_str()), 1;
  const std::string_view text = "kept in zones";
  const auto stored = pages->put(furrow::Key::from("note"), std::as_bytes(std::span(text)));
  if (!stored.ok()) return std::puts(stored.describe().c_str()), 1;
  const auto page = pages->get(furrow::Key::from("note"));
  if (!page) return std::puts(page.status().describe().c_str()), 1;
  std::fwrite(page->data(), 1, page->size(), stdout);
  std::puts("");
}
