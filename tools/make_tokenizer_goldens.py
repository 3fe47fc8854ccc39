#!/usr/bin/env python3
"""Writes tests/text/golden/tokenizers.tar.xz: tokenizers of every supported make, and what the reference does with generated texts.

The references are the Python packages `tokenizers` and `sentencepiece`; run this where both are installed. Files:
  <name>.tokenizer.json   the tokenizer, trained here (tiny_hybrid is models/tiny-hybrid/tokenizer.json)
  <name>.cases.json       "cases": [{"text", "ids", and where different: "plain" (without special tokens put around),
                          "literal" (special tokens in the text are text)}], "decode": [{"ids", "skip", "all"}]
  <name>.parts.json       a SentencePiece vocabulary as its pieces, and "cases" of it
The C++ tests compare all of it; they need no Python.
"""
import argparse
import io
import json
import pathlib
import tarfile
import tempfile
import random
import sys

try:
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPT4O_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (GPT4O_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (GPT4O_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (GPT4O_CASE + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + GPT4O_CASE + "?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + GPT4O_CASE + "?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

WORDS = """the of and to in is that it was for on are with as his they be at one have this from or had by hot but some
what there we can out other were all your when up use word how said an each she which do their time if will way about
many then them would write like so these her long make thing see him two has look more day could go come did my sound
no most number who over know water than call first people may down side been now find Hello World don't I'll we've
they're he'd I'm it's CamelCase snake_case HTTPServer x1y2 O'Brien rock'n'roll""".split()
SCRIPTS = """你好世界 中文分词测试 日本語のテキスト カタカナ 한국어 안녕하세요 Привет мир Ёжик γειά σου κόσμε ΑΒΓς
שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก tiếng Việt café naïve Zürich straße İstanbul ıI ǅ ﬁ ﬃ ŉ ß ẞ
ăâđêôơư Čeština Žluťoučký ď Ą ę łódź þorn Ærø ΐ ᾳ ﷺ བོད་ ქართული Հայերեն አማርኛ ᏣᎳᎩ ខ្មែរ မြန်မာ ഭാഷ தமிழ் తెలుగు""".split()
EMOJI = "👋 👨‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ ☃ ☃️ 1️⃣ 🏳️‍🌈 🤷‍♀️ 😀😃 ™ © ® ✓ → ∑ ≠ √ ∞ 𝔘𝔫𝔦 𝟙𝟚 ½ ² ³ ¼ Ⅷ ① ㊿ ٣٤٥ १२३ 𞤀".split()
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u180e", "\u200b",
          "\ufeff", "\u2003", "\u0085", "\x0b", "\x0c", "\u202f", "\u1680", "     ", "\t\t ", "\r", "\u205f", "▁", "▁▁"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "—", "“”", "‘s", "’s", "«»", "¿", "。", "，", "、", "！", "…", "€",
        "£", "'S", "'LL", "'ſ", "'Re", "http://a.b/c?d=e&f", "a@b.c", "//", "/*", "*/", "->", "<=>", "==", "&&", "\\n", "<0x41>"]
MARKS = ["e\u0301", "a\u0308\u0304", "o\u0302\u0301", "\u0301", "n\u0303o", "\u1100\u1161\u11a8", "\uac00\u11a8", "q\u0307\u0323",
         "\u0344", "\u212b", "\u2126", "\ufb01", "\u0f73", "\u0958", "\u1e9b\u0323", "x\u20dd", "\u3099か\u3099", "ｱﾞ", "Ａ１", "㎏"]
ODD = ["\x00", "\x01", "\x1f", "\x7f", "\u0080", "\ue000", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\U000e0041", "\u200d",
       "\u200c", "\u00ad", "\u034f", "\u2060", "\u061c", "\u202e", "\U0001f1e6", "\ud7ff", "\U00010000"]
NUMBERS = ["0", "7", "42", "365", "1000", "12345", "3.14159", "1,234,567", "0xFF", "1e-9", "2024-01-31", "٠١٢٣", "１２３４"]


def any_char(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x20000)])
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def generate(rng, specials):
    """One text, from a single character to a few dozen."""
    kinds = [lambda: rng.choice(WORDS), lambda: rng.choice(WORDS).capitalize(), lambda: " " + rng.choice(WORDS),
             lambda: rng.choice(SCRIPTS), lambda: rng.choice(EMOJI), lambda: rng.choice(SPACES), lambda: rng.choice(SPACES),
             lambda: rng.choice(PUNCT), lambda: rng.choice(PUNCT), lambda: rng.choice(MARKS), lambda: rng.choice(ODD),
             lambda: rng.choice(NUMBERS), lambda: any_char(rng), lambda: rng.choice(specials),
             lambda: rng.choice("abcABC 12\n.'") * rng.randrange(1, 6)]
    if rng.random() < 0.3:  # plain sentences
        kinds = kinds[:3]
    elif rng.random() < 0.3:  # two kinds only, so that they meet
        kinds = rng.sample(kinds, 2)
    return "".join(rng.choice(kinds)() for _ in range(rng.randrange(1, 9)))


def corpus():
    rng = random.Random(1)
    lines = (ROOT / "models/tiny-hybrid/eval.jsonl").read_text().splitlines()[:120]
    texts = [m["content"] for line in lines for m in json.loads(line).get("messages", [])]
    texts += [" ".join(rng.choice(WORDS + SCRIPTS + EMOJI + NUMBERS) for _ in range(30)) for _ in range(300)]
    return texts


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level(pre, normalizer=None, vocab=700, specials=SPECIALS, **bpe):
    tokenizer = Tokenizer(models.BPE(**bpe))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False,
                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_bos(tokenizer, bos, eos=None):
    names = [bos] + ([eos] if eos else [])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A" + (f" {eos}" if eos else ""), special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])
    return tokenizer


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def gpt2_prefix_space():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), vocab=400)
    return tokenizer


def llama3():
    tokenizer = with_bos(byte_level(split(LLAMA3), ignore_merges=True), "<|im_start|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), tokenizer.post_processor])
    return tokenizer


def qwen2():
    tokenizer = byte_level(split(QWEN2), normalizers.NFC())
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ["<think>", "</think>", "<tool_call>"]])
    return tokenizer


def qwen35():
    return byte_level(split(QWEN35), normalizers.NFC(), vocab=500)


def gpt4o():
    return byte_level(split(GPT4O), vocab=500)


def deepseek():
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return with_bos(byte_level(pre, normalizers.Sequence([]), vocab=500, specials=["<｜begin▁of▁sentence｜>"] + SPECIALS),
                    "<｜begin▁of▁sentence｜>")


def falcon():
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return byte_level(pre, vocab=500)


def starcoder():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return byte_level(pre, vocab=400)


def cohere_digits():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return byte_level(pre, vocab=400)


def sentence_piece_bpe(byte_fallback, fuse_unk, vocab=700):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    train(tokenizer, trainers.BpeTrainer(vocab_size=vocab, limit_alphabet=120, show_progress=False, special_tokens=specials))
    # The trainer marks all of them as special; published files do so for three.
    text = json.loads(tokenizer.to_str())
    text["added_tokens"] = [t for t in text["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(text))


def llama2():
    tokenizer = sentence_piece_bpe(byte_fallback=True, fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return with_bos(tokenizer, "<s>")


def gemma():
    tokenizer = sentence_piece_bpe(byte_fallback=True, fuse_unk=True, vocab=600)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ["\n\n", "▁▁▁", "<unused0>"]])
    return with_bos(tokenizer, "<s>", "</s>")


def metaspace_bpe():
    tokenizer = sentence_piece_bpe(byte_fallback=False, fuse_unk=False, vocab=500)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer


def metaspace_fused():
    tokenizer = sentence_piece_bpe(byte_fallback=False, fuse_unk=True, vocab=400)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    return tokenizer


def unigram(byte_fallback):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    train(tokenizer, trainers.UnigramTrainer(vocab_size=700, unk_token="<unk>", special_tokens=specials, show_progress=False))
    text = json.loads(tokenizer.to_str())
    text["added_tokens"] = [t for t in text["added_tokens"] if not t["content"].startswith("<0x")]
    text["model"]["byte_fallback"] = byte_fallback
    tokenizer = Tokenizer.from_str(json.dumps(text))
    if byte_fallback:
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    else:
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return with_bos(tokenizer, "<s>", "</s>")


def unigram_bytes():
    return unigram(True)


def unigram_plain():
    tokenizer = unigram(False)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    return tokenizer


def added_tokens():
    tokenizer = byte_level(split(QWEN2), normalizers.Lowercase(), vocab=400)
    make = [("<mask>", dict(lstrip=True, special=True)), ("<right>", dict(rstrip=True, special=True)),
            ("<both>", dict(lstrip=True, rstrip=True)), ("word", dict(single_word=True, normalized=False)),
            ("Mixed", dict(normalized=True)), ("MIXEDCASE", dict(normalized=True)), ("  ", dict(normalized=False)),
            ("    ", dict(normalized=False)), ("<think>", dict(normalized=False)), ("<think", dict(normalized=False)),
            ("single", dict(single_word=True, normalized=True, lstrip=True))]
    for content, options in make:
        tokenizer.add_tokens([AddedToken(content, **options)])
    return tokenizer


def splits():
    """Every behaviour of Split, and the smaller pre-tokenizers, on a model of characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("-", "merged_with_previous"), pre_tokenizers.Split(Regex(r"[A-Z]"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\d"), "contiguous"), pre_tokenizers.Split(Regex(r"[^#]+"), "removed", invert=True),
        pre_tokenizers.Split(Regex(r"\w+"), "isolated", invert=True), pre_tokenizers.Whitespace(),
        pre_tokenizers.Punctuation("merged_with_previous")])
    tokenizer.decoder = decoders.Fuse()
    return train(tokenizer, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], limit_alphabet=150, show_progress=False))


def sentence_piece(name, kind, prefix, count):
    """A vocabulary trained by SentencePiece itself, with its own answers."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, vocab_size=700, model_type=kind, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2, num_threads=1)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(processor.vocab_size())
    types = [3 if processor.is_control(i) else 2 if processor.is_unknown(i) else 6 if processor.is_byte(i) else 1 for i in ids]
    rng = random.Random(name)
    texts = list(dict.fromkeys([" ", "  a", "a  ", "▁", " ▁ "] + [generate(rng, SPECIALS) for _ in range(count)]))
    return {"kind": kind, "add_space_prefix": prefix, "tokens": [processor.id_to_piece(i) for i in ids], "types": types,
            "scores": [processor.get_score(i) for i in ids],
            "cases": [{"text": text, "ids": processor.encode(text)} for text in texts]}


def string_merges(text):
    """Merges as older files have them."""
    data = json.loads(text)
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def compact(text):
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def cases_of(name, tokenizer, count):
    rng = random.Random(name)
    specials = [t.content for t in tokenizer.get_added_tokens_decoder().values()] or SPECIALS
    edges = ["", " ", "\n", "a", " a", "  a", "a  ", " a b  c   d", "\u180e", "a\u180eb", " \u180e ", "x" * 70, "ab" * 40,
             " " * 40 + "x", "'s 'S 'ſ", "\u212a's K"] + SPACES + MARKS + ODD
    edges += rng.sample(EMOJI, 12) + rng.sample(SCRIPTS, 12)
    for special in specials[:14]:
        edges += [special, f"a{special}b", f" {special} ", f"{special}{special}", special[:-1], special.upper(), f"x {special}\n{special[1:]}"]
    texts = list(dict.fromkeys(edges + [generate(rng, specials) for _ in range(count)]))
    cases = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        case = {"text": text, "ids": tokenizer.encode(text).ids}
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        literal = tokenizer.encode(text).ids
        if plain != case["ids"]:
            case["plain"] = plain
        if literal != case["ids"]:
            case["literal"] = literal
        cases.append(case)
    tokenizer.encode_special_tokens = False
    # Runs of byte tokens that are no character: the reference gives one U+FFFD a byte of the whole run, which a stream
    # cannot know in time; Strata gives one for each ill-formed part. So these are left out here.
    # So are added tokens that normalisation changes: some versions of the reference write those normalised.
    changed = {i for i, t in tokenizer.get_added_tokens_decoder().items() if tokenizer.id_to_token(i) != t.content}
    vocab = [i for i in sorted(tokenizer.get_vocab().values())
             if i not in changed and not tokenizer.id_to_token(i).startswith("<0x")]
    sequences = [c["ids"] for c in rng.sample(cases, min(len(cases), 80)) if not changed.intersection(c["ids"])]
    sequences += [[rng.choice(vocab) for _ in range(rng.randrange(1, 12))] for _ in range(80)]
    decode = []
    for ids in sequences:
        entry = {"ids": ids, "skip": tokenizer.decode(ids, skip_special_tokens=True)}
        whole = tokenizer.decode(ids, skip_special_tokens=False)
        if whole != entry["skip"]:
            entry["all"] = whole
        decode.append(entry)
    return {"cases": cases, "decode": decode}


ARCHIVE = ROOT / "tests/text/golden/tokenizers.tar.xz"
MAKERS = [gpt2, gpt2_prefix_space, llama3, qwen2, qwen35, gpt4o, deepseek, falcon, starcoder, cohere_digits, llama2, gemma,
          metaspace_bpe, metaspace_fused, unigram_bytes, unigram_plain, added_tokens, splits]


def dump(data):
    """JSON with one case a line, so that changes can be read."""
    lists = {key: ",\n".join(json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in data[key]) for key in data}
    return "{%s}\n" % ",\n".join(f'"{key}":[\n{lines}]' for key, lines in lists.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=110, help="generated texts for each tokenizer besides the fixed ones")
    parser.add_argument("--cases-only", action="store_true", help="keep the tokenizers that are there")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the reference no longer says what is recorded")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args.out = pathlib.Path(folder)
        if ARCHIVE.exists():
            with tarfile.open(ARCHIVE) as there:
                there.extractall(folder)
        record(args)
        if not args.check:
            with tarfile.open(ARCHIVE, "w:xz", preset=9) as out:
                for file in sorted(args.out.iterdir()):
                    member = tarfile.TarInfo(file.name)
                    member.size = file.stat().st_size
                    with open(file, "rb") as data:
                        out.addfile(member, data)


def record(args):
    if not args.cases_only and not args.check:
        for maker in MAKERS:
            text = maker().to_str()
            text = string_merges(text) if maker in (gpt2, llama2) else compact(text)
            (args.out / f"{maker.__name__}.tokenizer.json").write_text(text)
        for name, kind, prefix in [("sp_bpe", "bpe", True), ("sp_bpe_bare", "bpe", False), ("sp_unigram", "unigram", True)]:
            data = sentence_piece(name, kind, prefix, args.count * 2)
            (args.out / f"{name}.parts.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    changed = []
    for name in ["tiny_hybrid"] + [maker.__name__ for maker in MAKERS]:
        path = ROOT / "models/tiny-hybrid/tokenizer.json" if name == "tiny_hybrid" else args.out / f"{name}.tokenizer.json"
        cases = dump(cases_of(name, Tokenizer.from_file(str(path)), args.count * (6 if name == "tiny_hybrid" else 1)))
        file = args.out / f"{name}.cases.json"
        if not args.check:
            file.write_text(cases)
        elif file.read_text() != cases:
            changed.append(file.name)
    if changed:
        raise SystemExit(f"the reference does not say what is recorded in {', '.join(changed)}")


if __name__ == "__main__":
    main()
