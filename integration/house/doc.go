// Package house holds the tests of the house itself: who may import whom, and how long a file may be.
package house
