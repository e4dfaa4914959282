// Package engine runs a model's forward pass over leased KV pages, through the C surface in engine.h.
//
// One [Engine] is one model on one back end:
//
//	cpu      AVX2 or AVX-512, quantised dot products, bf16 KV; the two paths agree bit for bit
//	ref      plain scalar C++, f32 arithmetic over the dequantised weights, bf16 KV
//	ref-f32  the same with f32 KV: the definition that the others are compared with
//
// A step takes work for many sequences, prefill chunks and decode tokens mixed, and gives logits, the digests of the
// pages that it appended to, and fault records. The engine owns each sequence's length; a plan that disagrees is a
// fault. A page's tag is checked at every read and write; see engine.h for what a mismatch does.
//
// A sequence's bits depend on its own tokens, the weights and the numerics class; not on its company in a step, the
// chunk size or the number of threads.
//
// # Files
//
// engine.h is the surface, internal.h what a back end sees. state.h, engine.cc, step.cc and digest.cc are common; ref_*
// is the reference, cpu_* the SIMD back end, nocpu.cc what stands in for it elsewhere. Without cgo the package compiles
// and [Open] says what is missing; [PageSum] works.
package engine
