// Package transfer decides what a Pull must prove.
package transfer
