// Package mesh is what every process of the mesh does alike.
package mesh
