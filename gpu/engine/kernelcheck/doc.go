// Package kernelcheck holds the cpu back end's kernels against scalar code that does one operation at a time in the order
// that the kernels' headers state: numerics class x86-fma-1 is that order, so not one bit may differ.
//
// It compiles the kernels' own sources. A path that this machine lacks is not checked; with the build tag simde (and
// Debian's libsimde-dev) the AVX-512 path is compiled against emulated intrinsics and checked anywhere:
//
//	go test -tags simde ./engine/kernelcheck
//
// Nothing imports this package.
package kernelcheck
