#include "log/recovery_notes.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr absl::string_view kFirstLine = "salius-recoveries 1";
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxTextBytes = 1000;  // per sentence
constexpr size_t kMaxRanges = 100;
constexpr size_t kMaxSentences = 16;
constexpr size_t kNumbers = 6;  // words before the lists

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(kRecoveriesFileName, ": ", what));
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == ':' || c == '-' || c == '/';
}

// Returns the text as one word.
std::string Escape(std::string_view text) {
  std::string word;
  for (const char c : text.substr(0, kMaxTextBytes)) {
    if (IsPlain(c)) {
      word += c;
    } else {
      absl::StrAppendFormat(&word, "%%%02x", static_cast<unsigned char>(c));
    }
  }
  return word;
}

absl::StatusOr<std::string> Unescape(absl::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      text += word[i];
      continue;
    }
    uint32_t byte = 0;
    if (!absl::SimpleHexAtoi(word.substr(i + 1, 2), &byte) || byte > 0xff) {
      return Malformed("a bad escape");
    }
    text += static_cast<char>(byte);
    i += 2;
  }
  return text;
}

std::string Line(const RecoveryNote& note) {
  std::string line =
      absl::StrFormat("%u %u %u %u %u %s", note.at_unix_ms, note.epoch, note.next_epoch,
                      note.decided, note.records, note.acknowledged ? "acknowledged" : "new");
  for (size_t i = 0; i < std::min(note.given_up.size(), kMaxRanges); ++i) {
    absl::StrAppendFormat(&line, " lost=%u-%u", note.given_up[i].first, note.given_up[i].second);
  }
  for (size_t i = 0; i < std::min(note.overridden.size(), kMaxSentences); ++i) {
    absl::StrAppend(&line, " because=", Escape(note.overridden[i]));
  }
  return line;
}

absl::Status ParseItem(absl::string_view word, RecoveryNote* note) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (parts.first == "because") {
    SALIUS_ASSIGN_OR_RETURN(std::string sentence, Unescape(parts.second));
    note->overridden.push_back(std::move(sentence));
    return absl::OkStatus();
  }
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(parts.second, absl::MaxSplits('-', 1));
  std::pair<Seq, Seq> range;
  if (parts.first != "lost" || !absl::SimpleAtoi(ends.first, &range.first) ||
      !absl::SimpleAtoi(ends.second, &range.second)) {
    return Malformed("a word that this program does not write");
  }
  note->given_up.push_back(range);
  return absl::OkStatus();
}

absl::StatusOr<RecoveryNote> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  RecoveryNote note;
  if (words.size() < kNumbers || !absl::SimpleAtoi(words[0], &note.at_unix_ms) ||
      !absl::SimpleAtoi(words[1], &note.epoch) || !absl::SimpleAtoi(words[2], &note.next_epoch) ||
      !absl::SimpleAtoi(words[3], &note.decided) || !absl::SimpleAtoi(words[4], &note.records) ||
      (words[5] != "acknowledged" && words[5] != "new")) {
    return Malformed("a line that this program does not write");
  }
  note.acknowledged = words[5] == "acknowledged";
  for (size_t i = kNumbers; i < words.size(); ++i) {
    SALIUS_RETURN_IF_ERROR(ParseItem(words[i], &note));
  }
  return note;
}

}  // namespace

std::string GivenUpText(const RecoveryNote& note) {
  constexpr size_t kShown = 8;
  std::vector<std::string> parts;
  std::string ranges;
  for (size_t i = 0; i < std::min(note.given_up.size(), kShown); ++i) {
    const auto& [first, last] = note.given_up[i];
    absl::StrAppend(&ranges, i == 0 ? "" : ", ",
                    first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  if (note.given_up.size() > kShown) {
    absl::StrAppend(&ranges, " and ", note.given_up.size() - kShown, " more ranges");
  }
  if (!ranges.empty()) parts.push_back("records " + ranges);
  for (const std::string& sentence : note.overridden) {
    // It may contain names of files, which can be any bytes.
    std::string ascii = Printable(sentence, NewLines::kReplace);
    std::replace_if(
        ascii.begin(), ascii.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; },
        '?');
    parts.push_back(std::move(ascii));
  }
  return absl::StrJoin(parts, "; ");
}

const RecoveryNote* RecoveryNotes::Find(Epoch epoch) const {
  const auto at = std::find_if(notes_.begin(), notes_.end(),
                               [epoch](const RecoveryNote& note) { return note.epoch == epoch; });
  return at == notes_.end() ? nullptr : &*at;
}

void RecoveryNotes::Put(RecoveryNote note) {
  std::erase_if(notes_, [&](const RecoveryNote& old) {
    return old.epoch == note.epoch || !old.GaveUp() || old.acknowledged;
  });
  if (note.given_up.size() > kMaxRanges) {
    note.given_up[kMaxRanges - 1].second = note.given_up.back().second;
    note.given_up.resize(kMaxRanges);
  }
  notes_.push_back(std::move(note));
  if (notes_.size() > kMost) notes_.erase(notes_.begin(), notes_.end() - kMost);
}

uint32_t RecoveryNotes::AcknowledgeAll() {
  uint32_t count = 0;
  for (RecoveryNote& note : notes_) {
    if (!note.GaveUp() || note.acknowledged) continue;
    note.acknowledged = true;
    ++count;
  }
  return count;
}

std::vector<RecoveryNote> RecoveryNotes::Unacknowledged() const {
  std::vector<RecoveryNote> open;
  for (const RecoveryNote& note : notes_) {
    if (note.GaveUp() && !note.acknowledged) open.push_back(note);
  }
  return open;
}

std::string RecoveryNotes::Encode() const {
  std::string text = absl::StrCat(kFirstLine, "\n");
  for (const RecoveryNote& note : notes_) absl::StrAppend(&text, Line(note), "\n");
  absl::StrAppendFormat(&text, "crc32c %08x\n", Crc32c(AsBytes(text)));
  return text;
}

absl::StatusOr<RecoveryNotes> RecoveryNotes::Decode(std::string_view text) {
  constexpr size_t kLastLineBytes = 16;  // "crc32c 01234567\n"
  if (text.size() < kLastLineBytes) {
    return absl::DataLossError(absl::StrCat(kRecoveriesFileName, ": cut short"));
  }
  const std::string_view body = text.substr(0, text.size() - kLastLineBytes);
  if (text.substr(body.size()) != absl::StrFormat("crc32c %08x\n", Crc32c(AsBytes(body)))) {
    return absl::DataLossError(absl::StrCat(kRecoveriesFileName, ": checksum does not match"));
  }
  std::vector<absl::string_view> lines = absl::StrSplit(Av(body), '\n');
  if (lines.size() < 2 || lines.front() != kFirstLine || !lines.back().empty()) {
    return Malformed("not written by this version");
  }
  RecoveryNotes notes;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    SALIUS_ASSIGN_OR_RETURN(RecoveryNote note, ParseLine(lines[i]));
    notes.notes_.push_back(std::move(note));
  }
  // One content has one text.
  if (notes.notes_.size() > kMost || notes.Encode() != text) return Malformed("another spelling");
  return notes;
}

absl::StatusOr<RecoveryNotes> ReadRecoveryNotes(Files& files, int salius_fd) {
  const absl::StatusOr<std::string> text =
      ReadWholeFile(files, salius_fd, kRecoveriesFileName, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return RecoveryNotes();
  SALIUS_RETURN_IF_ERROR(text.status());
  absl::StatusOr<RecoveryNotes> notes = RecoveryNotes::Decode(*text);
  if (!notes.ok()) return AtPath(notes.status(), PathAt(salius_fd, kRecoveriesFileName));
  return notes;
}

absl::Status WriteRecoveryNotes(Files& files, int salius_fd, const RecoveryNotes& notes) {
  return WriteFileAtomically(files, salius_fd, kRecoveriesFileName, AsBytes(notes.Encode()));
}

}  // namespace salius
