// Package shape writes OpenAI's exact bytes.
//
// protojson is not used for answers: its white space is random by design, it writes 64-bit integers as strings, and it
// cannot tell a null from an absent field. Here every field has its place and its rule.
package shape
