// Conversions between std::string_view, which our interfaces take, and absl::string_view.
//
// The distribution builds Abseil with a string_view of its own, so the two do not convert into each
// other. absl::StrFormat("%s") and fmt take a std::string_view directly. absl::StrCat, StrSplit,
// heterogeneous look-up and the Status constructors need Av().
#ifndef SALIUS_COMMON_STRINGS_H_
#define SALIUS_COMMON_STRINGS_H_

#include <string>
#include <string_view>

#include "absl/strings/string_view.h"

namespace salius {

// Returns the same bytes as an absl::string_view.
inline absl::string_view Av(std::string_view text) { return {text.data(), text.size()}; }

// Returns the same bytes as a std::string_view.
inline std::string_view Sv(absl::string_view text) { return {text.data(), text.size()}; }

// Returns the text with '?' for control characters: text from peers and file names must not act on
// a terminal.
enum class NewLines { kKeep, kReplace };
inline std::string Printable(std::string text, NewLines new_lines) {
  for (char& c : text) {
    const bool kept = c == '\n' && new_lines == NewLines::kKeep;
    if (!kept && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) c = '?';
  }
  return text;
}

// Returns the text as one word of a shell command: unchanged, or between single quotes. For
// commands that a message proposes.
inline std::string ShellQuote(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("%+,-./:=@_").find(c) != std::string_view::npos;
  };
  bool safe = !text.empty();
  for (const char c : text) safe = safe && plain(c);
  if (safe) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace salius

#endif  // SALIUS_COMMON_STRINGS_H_
