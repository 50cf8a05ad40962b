// One pass over model text: where its claims are, what they say, and why those that are no claims are none.
//
//   claim := "<obj>" name "</obj>" box{1,4} "at<t>" seconds "</t>s"      box := "<box>" [x1, y1, x2, y2] "</box>"
//
// White space may stand between any two parts. A tag may hold no other tag, so a claim is a run of tags without choice
// points, and the scan is linear whatever the text. docs/grammar.md says it in full.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ser_fast::claims {

constexpr int kMaxBoxes = 4;
constexpr int kMaxBracketDepth = 4;

// 0, then the first ones of ser_fast.faults.PolicyFault in their order.
enum class Fault : int8_t {
    kNone,
    kMissingName,
    kNestedTag,
    kMissingBox,
    kMalformedBox,
    kTooManyBoxes,
    kMissingTime,
    kMalformedTime,
    kMissingUnit,
    kNonFinite,
    kInAnswer,
    kThinkUnclosed,
    kOutsideThink,
};

// The claims of many texts, struct of arrays. Positions are in characters (code points), ranges half open.
struct Table {
    std::vector<int64_t> claims_per_text;
    // A text a row: inside the first pair of think tags (begin, end), inside the first pair of answer tags (begin,
    // end), both -1 where a tag is missing; and 1 if there are as many opening as closing tags of each kind (think and
    // answer anywhere, obj, box and t inside think).
    std::vector<int64_t> layout;
    // A claim a row, attempts at one included.
    std::vector<int8_t> fault;
    std::vector<int64_t> span;  // text begin, end; name begin, end
    std::vector<double> time;
    std::vector<int64_t> boxes_per_claim;
    // A box a row: x1 y1 x2 y2. Claims with a fault have none.
    std::vector<double> box;
};

// Appends the claims of one text. It is UTF-8; lone surrogates in their three-byte form are accepted as characters.
void scan(std::string_view text, Table &table);

}  // namespace ser_fast::claims
