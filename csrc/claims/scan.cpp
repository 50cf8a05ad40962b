#include "claims/scan.h"

#include <array>
#include <cmath>
#include <cstring>

#include "claims/number.h"

namespace ser_fast::claims {
namespace {

enum Name { kObj, kBox, kTime, kThink, kAnswer, kNumNames };

constexpr std::array<std::string_view, kNumNames> kNames = {"obj", "box", "t", "think", "answer"};
constexpr std::string_view kFirstLetters = "obta";

struct Bytes {
    size_t begin = 0;
    size_t end = 0;
};

struct Tag {
    Name name;
    bool open;
    Bytes at;
};

std::vector<Tag> find_tags(std::string_view text) {
    std::vector<Tag> tags;
    for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
        std::string_view rest = text.substr(at + 1);
        const bool open = !rest.starts_with('/');
        rest.remove_prefix(open ? 0 : 1);
        if (rest.empty() || kFirstLetters.find(rest.front()) == std::string_view::npos) {
            continue;
        }
        for (int name = 0; name < kNumNames; ++name) {
            const size_t size = kNames[name].size();
            if (rest.size() > size && rest[size] == '>' && rest.starts_with(kNames[name])) {
                tags.push_back({static_cast<Name>(name), open, {at, at + size + (open ? 2 : 3)}});
                break;
            }
        }
    }
    return tags;
}

struct Attempt {
    Fault fault = Fault::kNone;
    Bytes text;
    Bytes name;
    double time = 0.0;

    // The first fault in the order of the text is the one reported.
    void fail(Fault reason) {
        if (fault == Fault::kNone) {
            fault = reason;
        }
    }
};

// Reads attempts at claims off a list of tags, each tag once.
class Reader {
  public:
    Reader(std::string_view text, const std::vector<Tag> &tags) : text_(text), tags_(tags) {}

    // The attempt that starts at tag first, an opening obj or box. next() is then the first tag behind it.
    Attempt read(size_t first) {
        next_ = first;
        end_ = tags_[first].at.begin;
        boxes_.clear();
        Attempt claim;
        claim.text.begin = end_;
        if (!read_parts(claim)) {
            skip_remains();
        }
        claim.text.end = end_;
        return claim;
    }

    size_t next() const { return next_; }

    // x1 y1 x2 y2 of each box of the last attempt
    const std::vector<double> &boxes() const { return boxes_; }

  private:
    // False where the run of tags breaks off: the rest of the attempt is then not worth reading.
    bool read_parts(Attempt &claim) {
        if (follows(kObj, "") && !read_element(claim, claim.name)) {
            return false;
        }
        if (trim(slice(claim.name)).empty()) {
            claim.fail(Fault::kMissingName);
        }
        int num_tags = 0;
        for (; follows(kBox, ""); ++num_tags) {
            Bytes content;
            if (!read_element(claim, content)) {
                return false;
            }
            read_boxes(claim, slice(content));
        }
        if (num_tags == 0) {
            claim.fail(Fault::kMissingBox);
            return false;
        }
        if (!follows(kTime, "at")) {
            claim.fail(Fault::kMissingTime);
            return false;
        }
        Bytes seconds;
        if (!read_element(claim, seconds)) {
            return false;
        }
        read_time(claim, slice(seconds));
        while (end_ < text_.size() && is_space(text_[end_])) {
            ++end_;
        }
        if (end_ == text_.size() || text_[end_] != 's') {
            claim.fail(Fault::kMissingUnit);
            return false;
        }
        ++end_;
        return true;
    }

    // True if the next tag opens name and nothing but gap, in white space, stands before it.
    bool follows(Name name, std::string_view gap) const {
        return next_ < tags_.size() && tags_[next_].open && tags_[next_].name == name &&
               trim(slice({end_, tags_[next_].at.begin})) == gap;
    }

    // Reads the opening tag at next_, its content and its closing tag. False where another tag or the end comes first.
    bool read_element(Attempt &claim, Bytes &content) {
        const Tag &open = tags_[next_++];
        content.begin = open.at.end;
        const bool last = next_ == tags_.size();
        if (last || tags_[next_].open || tags_[next_].name != open.name) {
            claim.fail(Fault::kNestedTag);
            end_ = last ? text_.size() : tags_[next_].at.begin;
            return false;
        }
        content.end = tags_[next_].at.begin;
        end_ = tags_[next_].at.end;
        ++next_;
        return true;
    }

    void read_boxes(Attempt &claim, std::string_view content) {
        const size_t num_before = boxes_.size();
        if (!parse_boxes(content, boxes_)) {
            claim.fail(Fault::kMalformedBox);
            return;
        }
        for (size_t i = num_before; i < boxes_.size(); ++i) {
            if (!std::isfinite(boxes_[i])) {
                claim.fail(Fault::kNonFinite);
            }
        }
        if (boxes_.size() > 4 * kMaxBoxes) {
            claim.fail(Fault::kTooManyBoxes);
        }
    }

    static void read_time(Attempt &claim, std::string_view content) {
        content = trim(content);
        if (!take_number(content, claim.time) || !content.empty()) {
            claim.fail(Fault::kMalformedTime);
        } else if (!std::isfinite(claim.time)) {
            claim.fail(Fault::kNonFinite);
        }
    }

    // What is left of a broken attempt belongs to it: everything up to the next obj, think or answer tag.
    void skip_remains() {
        while (next_ < tags_.size()) {
            const Tag &tag = tags_[next_];
            if (tag.name == kThink || tag.name == kAnswer || (tag.name == kObj && tag.open)) {
                return;
            }
            end_ = tag.at.end;
            ++next_;
        }
    }

    std::string_view slice(Bytes bytes) const { return text_.substr(bytes.begin, bytes.end - bytes.begin); }

    std::string_view text_;
    const std::vector<Tag> &tags_;
    std::vector<double> boxes_;
    size_t next_ = 0;
    size_t end_ = 0;  // byte behind the last part read
};

// The first element called name: the indices of its two tags, tags.size() for one that is not there.
struct Element {
    size_t open, close;
};

Element first_element(const std::vector<Tag> &tags, Name name) {
    size_t open = 0;
    while (open < tags.size() && !(tags[open].name == name && tags[open].open)) {
        ++open;
    }
    size_t close = open;
    while (close < tags.size() && !(tags[close].name == name && !tags[close].open)) {
        ++close;
    }
    return {open, close};
}

// Byte offsets -> character offsets. Asked in ascending order, so that a whole text costs one pass.
class Characters {
  public:
    explicit Characters(std::string_view text) : text_(text) {}

    int64_t at(size_t byte) {
        for (; byte_ < byte; ++byte_) {
            const auto value = static_cast<unsigned char>(text_[byte_]);
            characters_ += (value & 0xC0) != 0x80 ? 1 : 0;
        }
        return characters_;
    }

  private:
    std::string_view text_;
    size_t byte_ = 0;
    int64_t characters_ = 0;
};

void append_content(std::string_view text, const std::vector<Tag> &tags, const Element &element,
                    std::vector<int64_t> &layout) {
    if (element.close == tags.size()) {
        layout.insert(layout.end(), {-1, -1});
        return;
    }
    Characters characters(text);
    layout.push_back(characters.at(tags[element.open].at.end));
    layout.push_back(characters.at(tags[element.close].at.begin));
}

bool is_balanced(const std::vector<Tag> &tags, const Element &think) {
    std::array<int64_t, kNumNames> surplus{};
    for (size_t i = 0; i < tags.size(); ++i) {
        const bool anywhere = tags[i].name == kThink || tags[i].name == kAnswer;
        if (anywhere || (think.open < i && i < think.close && think.close < tags.size())) {
            surplus[tags[i].name] += tags[i].open ? 1 : -1;
        }
    }
    return surplus == std::array<int64_t, kNumNames>{};
}

}  // namespace

void scan(std::string_view text, Table &table) {
    const std::vector<Tag> tags = find_tags(text);
    const Element think = first_element(tags, kThink);
    append_content(text, tags, think, table.layout);
    append_content(text, tags, first_element(tags, kAnswer), table.layout);
    table.layout.push_back(is_balanced(tags, think) ? 1 : 0);

    Characters characters(text);
    Reader reader(text, tags);
    bool in_answer = false;
    int64_t num_claims = 0;
    for (size_t i = 0; i < tags.size();) {
        const Tag &tag = tags[i];
        if (!tag.open || (tag.name != kObj && tag.name != kBox)) {
            in_answer = tag.name == kAnswer ? tag.open : in_answer;
            ++i;
            continue;
        }
        Attempt claim = reader.read(i);
        if (in_answer) {
            claim.fault = Fault::kInAnswer;
        } else if (i < think.open || i > think.close) {
            claim.fault = Fault::kOutsideThink;
        } else if (think.close == tags.size()) {
            claim.fault = Fault::kThinkUnclosed;
        }
        const bool good = claim.fault == Fault::kNone;
        const int64_t begin = characters.at(claim.text.begin);
        const int64_t name_begin = good ? characters.at(claim.name.begin) : begin;
        const int64_t name_end = good ? characters.at(claim.name.end) : begin;
        table.span.insert(table.span.end(), {begin, characters.at(claim.text.end), name_begin, name_end});
        table.fault.push_back(static_cast<int8_t>(claim.fault));
        table.time.push_back(good ? claim.time : 0.0);
        table.boxes_per_claim.push_back(good ? static_cast<int64_t>(reader.boxes().size() / 4) : 0);
        if (good) {
            table.box.insert(table.box.end(), reader.boxes().begin(), reader.boxes().end());
        }
        ++num_claims;
        i = reader.next();
    }
    table.claims_per_text.push_back(num_claims);
}

}  // namespace ser_fast::claims
