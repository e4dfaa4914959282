// Package apierr is the one map from the mesh's errors to OpenAI's error object, its HTTP status and its gRPC code.
//
// An [Error] that reaches a tenant never holds the text of an internal or corrupt failure.
package apierr
