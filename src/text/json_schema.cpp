#include "text/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "text/json_text.h"
#include "text/number_range.h"
#include "text/pattern.h"
#include "text/string_format.h"
#include "text/utf8.h"

namespace strata {
namespace {

constexpr int kDead = GrammarBuilder::kDead;
constexpr int kMaxPrefix = 10000;  // minItems and prefixItems that are written out

int limit_of(int max) { return max < 0 ? kNoLimit : max; }

int characters(std::string_view utf8) {
  return static_cast<int>(std::count_if(
      utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

class Compiler {
 public:
  explicit Compiler(const Json& schema) : reader_(schema), schema_(schema) {}

  Grammar compile(const AnswerFrame& frame) {
    const int answer = b_.declare();
    indent_ = declare_indent(b_);
    const int value = rule_of(schema_, "#");
    b_.begin(answer);
    define_answer(frame, value);
    for (; !todo_.empty(); todo_.pop_front()) {
      b_.begin(todo_.front().rule);
      path_ = todo_.front().path;
      b_.define(value_of(todo_.front().schema));
    }
    path_ = "#";
    return b_.build(answer);
  }
  const std::string& path() const { return path_; }

 private:
  struct Todo {
    int rule;
    Json schema;
    std::string path;
  };

  void define_answer(const AnswerFrame& frame, int value) {
    int json = b_.call(value, b_.end());
    if (frame.tool_calls) json = b_.either(json, b_.literal("<tool_call>", anything(b_)));
    const ByteSet line = bytes_of("\n");
    const int after = b_.either(json, b_.bytes(line, b_.either(json, b_.bytes(line, json))));
    if (frame.thinking == AnswerFrame::Thinking::kOpen) return b_.define(until(b_, "</think>", after));
    if (frame.thinking == AnswerFrame::Thinking::kAllowed)
      json = b_.either(json, b_.literal("<think>", until(b_, "</think>", after)));
    b_.define(json);
  }

  // The rule of a schema, compiled later; equal schemas share one.
  int rule_of(const Json& schema, const std::string& path) {
    const Json& target = reader_.target(schema, path);
    if (!target.is_object() && !target.is_boolean()) schema_error(path, "must be an object, true or false");
    const auto [it, fresh] = rules_.try_emplace(target == true ? "{}" : target.dump(), 0);
    if (fresh) {
      it->second = b_.declare();
      todo_.push_back({it->second, target, path});
    }
    return it->second;
  }

  // A call of the schema's rule; dead at once where the schema is false.
  int value(const Json& schema, const std::string& path, int next) {
    return schema == false ? kDead : b_.call(rule_of(schema, path), next);
  }

  int value_of(const Json& schema) {
    if (const Json* branches = reader_.branches(schema)) {
      const bool one = schema.contains("oneOf");
      if (one) reader_.check_disjoint(*branches, {PlainSchema{}}, path_);
      int out = kDead;
      for (std::size_t i = 0; i < branches->size(); ++i)
        out = b_.either(
            out, value((*branches)[i], fmt::format("{}/{}/{}", path_, one ? "oneOf" : "anyOf", i), b_.end()));
      return out;
    }
    int out = kDead;
    for (const PlainSchema& plain : reader_.alternatives(schema, path_))
      out = b_.either(out, plain_value(plain));
    return out;
  }

  int plain_value(const PlainSchema& s) {
    if (s.values) return listed(s);
    const int types = s.meant_types();
    int out = kDead;
    if ((types & kNullType) != 0) out = b_.either(out, b_.literal("null", b_.end()));
    if ((types & kBooleanType) != 0)
      out = b_.either(out, b_.either(b_.literal("true", b_.end()), b_.literal("false", b_.end())));
    if ((types & kNumberType) != 0) out = b_.either(out, digits(numbers(s, types)));
    if ((types & kStringType) != 0) out = b_.either(out, string(s));
    if ((types & kArrayType) != 0) out = b_.either(out, array(s));
    if ((types & kObjectType) != 0) out = b_.either(out, object(s));
    return out;
  }

  template <typename Make>
  auto named(const Make& make) const {
    try {
      return make();
    } catch (const SchemaError& e) {
      if (std::string_view(e.what()).starts_with("schema ")) throw;
      schema_error(path_, e.what());
    }
  }

  CharDfa numbers(const PlainSchema& s, int types) const {
    if ((types & kIntegerType) == 0)
      schema_error(path_, "numbers that are not integers are not supported alone");
    const auto bound = [](const std::optional<Json>& inside, const std::optional<Json>& outside, bool low) {
      std::optional<NumberBound> out;
      if (inside) out = NumberBound{inside->dump(), false};
      const bool strict = outside && (!inside || (low ? *outside >= *inside : *outside <= *inside));
      if (strict) out = NumberBound{outside->dump(), true};
      return out;
    };
    return named([&] {
      return number_dfa((types & kFractionType) == 0, bound(s.minimum, s.above, true),
                        bound(s.maximum, s.below, false));
    });
  }

  // Numbers and the like: ASCII that a value is made of, without quotes.
  int digits(const CharDfa& dfa) {
    if (dfa.states.empty()) return kDead;
    std::vector<int> places;
    for (std::size_t s = 0; s < dfa.states.size(); ++s) places.push_back(b_.placeholder());
    for (std::size_t s = 0; s < dfa.states.size(); ++s) {
      int node = dfa.states[s].accept ? b_.end() : kDead;
      for (const CharDfa::Edge& e : dfa.states[s].edges)
        node = b_.either(node, b_.bytes(byte_range(static_cast<int>(e.low), static_cast<int>(e.high)),
                                        places[static_cast<std::size_t>(e.target)]));
      b_.fill(places[s], node);
    }
    return places[0];
  }

  // What patterns, formats and (with them) the least length say; nothing when they say nothing.
  std::optional<CharDfa> text(const PlainSchema& s) {
    std::optional<CharDfa> out;
    const auto add = [&](const CharDfa& dfa) { out = out ? intersect(*out, dfa) : dfa; };
    return named([&] {
      for (const std::string& pattern : s.patterns) add(pattern_dfa(pattern, work_));
      for (const std::string& format : s.formats) {
        const std::string_view pattern = format_pattern(format);
        if (pattern.empty()) throw SchemaError(fmt::format("the format {:?} is not supported", format));
        add(pattern_dfa(pattern, work_));
      }
      if (out && s.min_length > 0) add(at_least(s.min_length));
      return out;
    });
  }

  int string(const PlainSchema& s) {
    const int max = limit_of(s.max_length);
    if (s.min_length > max) return kDead;
    const auto dfa = text(s);
    return dfa ? json_string(b_, *dfa, max, b_.end()) : json_string(b_, s.min_length, max, b_.end());
  }

  int array(const PlainSchema& s) {
    const Json any = true;
    const auto prefix = static_cast<int>(s.prefix ? s.prefix->size() : 0);
    if (prefix > kMaxPrefix) schema_error(path_, "has too many prefixItems");
    const bool more = s.items ? *s.items != false : prefix == 0 || s.min_items > prefix;
    const int max = limit_of(s.max_items);
    if (s.min_items > max) return kDead;
    const int close = b_.literal("]", b_.end());
    const int done = white_space(b_, indent_, close);
    int item =
        kDead;  // an item and all that follows it; first one beyond the prefix, then those of the prefix
    if (more && max > prefix) {
      // Counted before the comma: after it an item must follow.
      const bool counts = max != kNoLimit || s.min_items > prefix;
      const auto counted = [&](int node) {
        return counts ? b_.count(max == kNoLimit ? max : max - prefix, node) : node;
      };
      const int again = b_.placeholder();
      const int end = b_.at_least(s.min_items - prefix, done);
      const int after = b_.either(end, counted(comma(again)));
      b_.fill(again, value(s.items ? *s.items : any, path_ + "/items", after));
      item = counted(again);
    }
    for (int i = prefix; i > 0; --i) {
      const int after = b_.either(comma(item), i >= s.min_items ? done : kDead);
      const Json& schema = (*s.prefix)[static_cast<std::size_t>(i) - 1];
      item = i > max ? kDead : value(schema, fmt::format("{}/prefixItems/{}", path_, i - 1), after);
    }
    return b_.literal("[", white_space(b_, indent_, b_.either(item, s.min_items == 0 ? close : kDead)));
  }

  int comma(int next) { return b_.literal(",", white_space(b_, indent_, next)); }

  int object(const PlainSchema& s) {
    const Json any = true, none = Json::object();
    Json properties = s.properties.value_or(none);
    const bool open = s.additional ? *s.additional != false : !s.properties;
    const Json& additional = s.additional ? *s.additional : any;
    for (const std::string& name : s.required) {
      if (properties.contains(name)) continue;
      if (s.additional && !open) return kDead;
      properties[name] = additional;
    }
    check_property_counts(s, properties.size(), open);

    // key: after the quote that opens the name of property i or a later one; after: when a property is done.
    const int close = b_.literal("}", b_.end());
    const int done = white_space(b_, indent_, close);
    int key = kDead, after = done;
    if (open) {
      after = b_.placeholder();
      key = additional_key(properties, value(additional, path_ + "/additionalProperties", after));
      b_.fill(after, b_.either(comma(b_.literal("\"", key)), done));
    }
    bool all_optional = true;
    const auto list = entries(properties);
    for (auto it = list.rbegin(); it != list.rend(); ++it) {
      const bool required = std::find(s.required.begin(), s.required.end(), it->first) != s.required.end();
      const int mine = property(it->first, it->second, after);
      key = required ? mine : b_.either(mine, key);
      all_optional = all_optional && !required;
      after = comma(b_.literal("\"", key));
      if (all_optional) after = b_.either(after, done);
    }
    const int first = b_.literal("\"", key);
    return b_.literal("{", white_space(b_, indent_, all_optional ? b_.either(first, close) : first));
  }

  static std::vector<std::pair<std::string, Json>> entries(const Json& object) {
    std::vector<std::pair<std::string, Json>> out;
    for (const auto& [name, value] : object.items()) out.emplace_back(name, value);
    return out;
  }

  int colon(int next) { return b_.literal(":", b_.either(b_.literal(" ", next), next)); }

  // A name without its first quote, and its value.
  int property(const std::string& name, const Json& schema, int next) {
    const int inner = value(schema, path_ + "/properties/" + name, next);
    return inner == kDead ? kDead : b_.literal(Json(name).dump().substr(1), colon(inner));
  }

  int additional_key(const Json& properties, int next) {
    std::vector<std::string> names;
    for (const auto& [name, schema] : properties.items()) names.push_back(name);
    return json_string(b_, named([&] { return none_of(names); }), kNoLimit, colon(next), true);
  }

  void check_property_counts(const PlainSchema& s, std::size_t properties, bool open) const {
    if (s.min_properties > static_cast<int>(s.required.size()))
      schema_error(path_, "minProperties is supported up to the number of required properties");
    if (s.max_properties >= 0 && (open || static_cast<int>(properties) > s.max_properties))
      schema_error(path_, "maxProperties is supported only where no more properties are possible");
  }

  // enum and const
  int listed(const PlainSchema& s) {
    std::vector<std::string> texts;
    std::optional<CharDfa> string;
    for (const Json& v : *s.values) {
      const int type = type_of(v);
      if (type == kStringType) {
        const auto& text = v.get_ref<const std::string&>();
        const int n = characters(text);
        if (n < s.min_length || n > limit_of(s.max_length)) continue;
        if (!string) string = this->text(s).value_or(CharDfa{});
        if ((!s.patterns.empty() || !s.formats.empty()) && !string->accepts(text)) continue;
      }
      if ((type & kNumberType) != 0 && outside(s, v)) continue;
      const bool shaped = type == kObjectType ? s.properties || s.additional || !s.required.empty() ||
                                                    s.min_properties > 0 || s.max_properties >= 0
                                              : s.prefix || s.items || s.min_items > 0 || s.max_items >= 0;
      if ((type == kObjectType || type == kArrayType) && shaped)
        schema_error(path_, "an enum of objects or arrays is not supported beside keywords for them");
      texts.push_back(v.dump());
    }
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    return shared_beginnings(texts, 0, b_.end());
  }

  static bool outside(const PlainSchema& s, const Json& v) {
    return (s.minimum && v < *s.minimum) || (s.above && v <= *s.above) || (s.maximum && v > *s.maximum) ||
           (s.below && v >= *s.below);
  }

  // Sorted texts, equal in their first `at` bytes, as a tree.
  int shared_beginnings(std::span<const std::string> texts, std::size_t at, int next) {
    int out = kDead;
    if (!texts.empty() && texts.front().size() == at) {
      out = next;
      texts = texts.subspan(1);
    }
    while (!texts.empty()) {
      std::size_t n = 1;
      while (n < texts.size() && texts[n][at] == texts[0][at]) ++n;
      if (n == 1) {
        out = b_.either(out, b_.literal(std::string_view(texts[0]).substr(at), next));
      } else {
        std::size_t end = at + 1;  // as far as all of them agree: sorted, so the first and the last tell
        while (end < texts[0].size() && texts[0][end] == texts[n - 1][end]) ++end;
        out = b_.either(out, b_.literal(std::string_view(texts[0]).substr(at, end - at),
                                        shared_beginnings(texts.subspan(0, n), end, next)));
      }
      texts = texts.subspan(n);
    }
    return out;
  }

  SchemaReader reader_;
  const Json& schema_;
  GrammarBuilder b_;
  int indent_ = 0;
  std::map<std::string, int> rules_;
  std::deque<Todo> todo_;
  std::string path_ = "#";
  std::size_t work_ = kPatternWork;
};

}  // namespace

Result<Grammar> compile_schema(const Json& schema, const AnswerFrame& frame) {
  try {
    Compiler compiler(schema);
    try {
      return compiler.compile(frame);
    } catch (const SchemaError& e) {
      if (std::string_view(e.what()).starts_with("schema ")) throw;
      schema_error(compiler.path(), e.what());
    }
  } catch (const SchemaError& e) {
    return bad_request(e.what());
  }
}

}  // namespace strata
