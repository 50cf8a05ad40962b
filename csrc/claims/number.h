// Numbers and bracketed boxes as models write them.
#pragma once

#include <string_view>
#include <vector>

namespace ser_fast::claims {

inline bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

inline std::string_view trim(std::string_view text) {
    while (!text.empty() && is_space(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_space(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

// Takes a number off the front of text: an integer, a decimal, with or without exponent; or nan, inf, infinity in any
// case. Values out of range become an infinity or zero, as Python's float() does. False, and text unchanged, where none
// stands.
bool take_number(std::string_view &text, double &value);

// Appends the boxes of one box tag: a bracket of four numbers, or brackets of such brackets. False where it is neither.
bool parse_boxes(std::string_view text, std::vector<double> &boxes);

}  // namespace ser_fast::claims
