// Package gguf reads GGUF model files, versions 2 and 3, little endian.
//
// [Open] maps a file read-only and [Parse] reads one that is in memory already. Both check everything that they will
// ever hand out before they return: each length against the bytes that are left, each tensor's extent against the file
// and against every other tensor. Nothing is allocated on the word of a count in the file: a count is believed only as
// far as the bytes behind it go, so a hostile file costs no more memory than a small multiple of its own size.
//
// Errors are [ErrFormat] (the file is damaged or hostile) or [ErrUnsupported] (the file may be right, but this reader
// does not know what it asks for); use errors.Is.
//
// A [File] may be read by many goroutines. Tensor data lies in the mapping: it must not be written, and must not be
// used after [File.Close]. Strings and slices from the metadata getters are copies and outlive the file. The file must
// not change while it is mapped, and a truncated one kills its readers; replace a model file by rename.
package gguf
