// The functions every template can call.
#include <array>
#include <ctime>

#include "text/jinja_arguments.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_registry.h"

namespace strata::jinja {
namespace {

constexpr Int kMaxRange = 100000;  // jinja2.sandbox.MAX_RANGE

Value object(ObjectPtr o) { return Value(std::move(o)); }

Value make_range(Interpreter& rt, Args& args) {
  const Bound bound("range", args, {"", "", ""}, 1);
  const Int first = require_int(bound[0]);
  auto range = bound.has(1) ? std::make_shared<Range>(first, require_int(bound[1]), bound.integer(2, 1))
                            : std::make_shared<Range>(0, first, 1);
  if (range->count > kMaxRange)
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", int_to_string(kMaxRange), ").");
  rt.charge(0);
  return object(std::move(range));
}

// dict(mapping or pairs, **named)
Dict build_dict(Args& args) {
  Dict dict;
  if (args.positional.size() > 1)
    fail("dict expected at most 1 argument, got ", std::to_string(args.positional.size()));
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is_dict()) {
      dict = source.dict();
    } else {
      Iterator next = iterate(source);
      for (Value pair; next(pair);) {
        const auto items = to_vector(pair);
        if (items.size() != 2)
          fail("dictionary update sequence element has length ", std::to_string(items.size()),
               "; 2 is required");
        dict.set(items[0], items[1]);
      }
    }
  }
  for (auto& [name, value] : args.named) dict.set(Value(name), std::move(value));
  return dict;
}

Value dict_of(Dict dict) { return Value(DictPtr(std::make_shared<const Dict>(std::move(dict)))); }

struct DictType : Object {
  const char* type_name() const override { return "TemplateDict"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Args& args) override { return dict_of(build_dict(args)); }
  Value attribute(const std::string& name) override {
    if (name != "fromkeys") return {};
    return object(std::make_shared<Builtin>(name, [](Interpreter&, Args& args) {
      const Bound bound("fromkeys", args, {"", ""}, 1);
      Dict dict;
      Iterator next = jinja::iterate(bound[0]);
      for (Value key; next(key);) dict.set(key, bound.get(1, Value(None{})));
      return dict_of(std::move(dict));
    }));
  }
};

Value raise_exception(Interpreter&, Args& args) {
  const Bound bound("raise_exception", args, {"message"}, 1);
  fail(to_string(bound[0]));
}

Value strftime_now(Interpreter& rt, Args& args) {
  const Bound bound("strftime_now", args, {"format"}, 1);
  const std::string& format = bound.text(0);
  if (format.empty()) return Value(std::string());
  const std::time_t now = rt.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(format.size() * 32 + 64, '\0');  // no conversion gives more than a long date
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &local));
  return rt.text(std::move(out));
}

Value make_cycler(Interpreter&, Args& args) {
  if (args.positional.empty()) fail("at least one item has to be provided");
  return object(std::make_shared<Cycler>(Value::tuple(std::move(args.positional))));
}

Value make_joiner(Interpreter&, Args& args) {
  const Bound bound("joiner", args, {"sep"});
  return object(std::make_shared<Joiner>(bound.get(0, Value(std::string(", ")))));
}

using GlobalFn = Value (*)(Interpreter&, Args&);
constexpr std::array<Named<GlobalFn>, 6> kGlobals = {{
    {"range", make_range},
    {"namespace", [](Interpreter& rt, Args& args) { return rt.make_namespace(build_dict(args)); }},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
}};

}  // namespace

Value find_global(std::string_view name) {
  if (name == "dict") return object(std::make_shared<DictType>());
  for (const auto& global : kGlobals) {
    if (global.name == name) return object(std::make_shared<Builtin>(std::string(name), global.function));
  }
  return {};
}

}  // namespace strata::jinja
