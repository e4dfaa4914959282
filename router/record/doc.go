// Package record keeps what happened to the last requests: the route, both halves' counts, and the time of each stage.
// It holds no text of a tenant.
package record
