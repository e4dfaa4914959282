// Package flow runs one choice of a request: it admits, opens Decode.Generate, starts Prefill.Run once decode has said
// yes, compares what both say they did, and only then gives tokens out.
//
// A [Stream] is what [Runner.Start] returns once the first token may go out, so every failure before it is an error of
// Start, and may have been retried there. All goroutines of a choice end before Start fails or Close returns.
package flow
