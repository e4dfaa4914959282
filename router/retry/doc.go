// Package retry decides whether a failed attempt may be made once more, on another pair.
//
// Once, before the first token, only when a worker or a transfer was lost, and only within a budget: retries may add a
// tenth to the load, so a mesh that fails as a whole is not asked twice as much.
package retry
