// Package model opens a model file and says everything about it that is not arithmetic: its shape, its weights' places,
// its tokenizer and its chat template.
//
// [Load] maps a GGUF file, checks that it is a llama-architecture model of which every tensor is there, in the right
// shape and in a known type, and that nothing is there that would change the result and is not known here (other rope
// scaling, experts, biases). A file that is not understood whole is refused: half a model gives an answer, but not the
// weights' answer.
//
// Two hashes name what a model is. Revision is the SHA-256 of the whole file. TokenizerRevision covers what turns text
// into ids and back, so that two processes with different weights can still agree on a prompt's ids.
//
// The packages below are usable alone: gguf reads the file, tokenizer and chat take what they need from it. modelfile
// is for tests.
package model
