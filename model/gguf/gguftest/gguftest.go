// Package gguftest writes small GGUF files for tests, wrong ones among them.
package gguftest

import "leasehold.dev/model/gguf/write"

// Builder is write's: it writes what it is told, and checks nothing until it is asked.
type Builder = write.Builder
