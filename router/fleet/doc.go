// Package fleet keeps the newest status of every worker: one Watch stream to each, for as long as it is in the
// registry. A worker that was not heard of for [Stale] is not picked, whatever it said last.
package fleet
