// Package kvbroker is the process that owns one page pool: package server on the mesh.
//
// Rooms: lease and transfer decide (pure), server carries out, attach binds worker processes, mover moves pages, client is
// what workers import.
package kvbroker
