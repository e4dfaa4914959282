//go:build !faults

package mover

// faultySource is src in a release build.
func faultySource(src Source, _ uint32) Source { return src }

// faultyStream is s in a release build.
func faultyStream(s ServerStream) ServerStream { return s }

// faultyCopy is from in a release build.
func faultyCopy(from []byte) []byte { return from }

// faultyPages sends pages as they are in a release build.
func faultyPages(send func(place uint32, change func([]byte) []byte) error) func(place uint32) error {
	return func(place uint32) error { return send(place, nil) }
}
