package model

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"leasehold.dev/model/chat"
	"leasehold.dev/model/gguf"
	"leasehold.dev/model/tokenizer"
)

// Model is an open model. It does not change, and may be used by many goroutines until it is closed.
type Model struct {
	Name              string // as clients name it, see [ServedName]
	File              *gguf.File
	Config            Config
	Tokenizer         *tokenizer.Tokenizer
	Template          *chat.Template // nil if the file has none
	Revision          [32]byte       // SHA-256 of the file
	TokenizerRevision [32]byte       // see [TokenizerRevision]
}

// Load opens and checks the model file at path. It reads the whole file once, for its hash. Errors about the file are
// gguf.ErrFormat, gguf.ErrUnsupported or chat.ErrTemplate; others are the system's.
func Load(path string) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Name: ServedName(path), File: f}
	if err := m.read(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return m, nil
}

func (m *Model) read() (err error) {
	if m.Config, err = ReadConfig(m.File); err != nil {
		return err
	}
	if m.Tokenizer, err = tokenizer.New(m.File); err != nil {
		return err
	}
	if have := m.Tokenizer.Vocab(); uint64(have) != uint64(m.Config.Vocab) {
		return fmt.Errorf("%w: %d tokens for %d embedding rows", gguf.ErrFormat, have, m.Config.Vocab)
	}
	if m.Template, err = readTemplate(m.File, m.Tokenizer); err != nil {
		return err
	}
	m.Revision = sha256.Sum256(m.File.Bytes())
	m.TokenizerRevision = TokenizerRevision(m.File)
	return nil
}

func readTemplate(f *gguf.File, t *tokenizer.Tokenizer) (*chat.Template, error) {
	src, ok := f.String("tokenizer.chat_template")
	if !ok {
		return nil, nil
	}
	tmpl, err := chat.Parse(src)
	if err != nil {
		return nil, err
	}
	eos := int32(-1)
	if id, ok := f.Uint32("tokenizer.ggml.eos_token_id"); ok && uint64(id) < uint64(t.Vocab()) {
		eos = int32(id)
	}
	bos, _ := t.BOS()
	return tmpl.WithTokens(string(t.Piece(bos)), string(t.Piece(eos))), nil
}

// Close unmaps the file; weights are gone afterwards, the tokenizer and the template are not.
func (m *Model) Close() error { return m.File.Close() }

// TokenizerRevision is the SHA-256 over "leasehold/tokenizer/v1" and then, for every metadata key that starts with
// "tokenizer.", in order of their bytes: the key's length (uint64, little endian), the key, the value's kind (uint32),
// the length (uint64) of the value as the file encodes it, and that encoding. These keys hold all tokens, their types,
// the merges, the pre-tokenizer's name, the special ids and the chat template.
func TokenizerRevision(f *gguf.File) [32]byte {
	h := sha256.New()
	h.Write([]byte("leasehold/tokenizer/v1"))
	frame := func(n int) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	for _, key := range f.Keys() {
		if !strings.HasPrefix(key, "tokenizer.") {
			continue
		}
		kind, data, _ := f.Raw(key)
		frame(len(key))
		h.Write([]byte(key))
		h.Write(binary.LittleEndian.AppendUint32(nil, kind))
		frame(len(data))
		h.Write(data)
	}
	return [32]byte(h.Sum(nil))
}

// quantisation is the ending of a file's name that says how the weights are stored.
var quantisation = regexp.MustCompile(`[-._](i?q[0-9]+(_[0-9a-z]+)*|bf16|f16|f32|fp16|fp32)$`)

// ServedName is the name under which a file's model is served: the file's name in lower case, without ".gguf" and
// without the quantisation at its end.
func ServedName(path string) string {
	name := strings.ToLower(filepath.Base(path))
	name = strings.TrimSuffix(name, ".gguf")
	return quantisation.ReplaceAllString(name, "")
}
