// Package bar holds the project's bars: what must be true, measured on this machine in this run.
//
// A [Bar] prints progress as it goes and ends with one line of JSON: its name, whether it is met, and the figures, the
// peers' beside ours. `make bars` runs all of them and prints a table.
package bar
