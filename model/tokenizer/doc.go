// Package tokenizer turns text into a model's token ids and back, with the vocabulary and the rules in its GGUF file.
//
// The kind is byte-level BPE (tokenizer.ggml.model = "gpt2"). Text is cut at special tokens first, then into words by
// the file's pre-tokenizer (tokenizer.ggml.pre), then each word is merged by rank. All three steps take time
// O(n log n) at worst, whatever the text: a megabyte of one letter is as harmless as a megabyte of prose.
//
// Any byte string can be encoded. Bytes that are no valid UTF-8 count as neither letter, digit nor space, and become
// the tokens of their bytes. Decode(Encode(x)) = Normalize(x), with special tokens and without, and Normalize changes
// only what the vocabulary has no token for.
//
// A [Tokenizer] never changes after [New] and may be used by many goroutines; a [Stream] belongs to one.
package tokenizer
