// Package catalogue is the table of faults that have happened to systems of this kind, row by row as in testdata/rows.txt,
// and for each row the scenarios that show what this system does then, over real processes and every mover.
//
// Most scenarios are here: they break a mesh of the faults build at one point and look at what came out, at the pools, and
// at the next honest request. Others are tests of other packages, named in the table and run by it.
package catalogue
