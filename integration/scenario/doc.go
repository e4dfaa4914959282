// Package scenario is what goes wrong, over real processes: each [Scenario] starts a mesh of its own, breaks one thing,
// and says what a tenant saw and whether the surviving brokers' pools came back to zero.
//
// Tests run them one by one; the bars run the same code and print the figures.
package scenario
