// Package validate turns a request message into what to generate, or refuses it with the name of the first wrong field.
//
// It is the one place for semantic rules, for gRPC and REST alike. It reads nothing but the message: no header, clock
// or worker. Limits in tokens come later, once the prompt is tokenised.
package validate
