package validate

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"leasehold.dev/router/apierr"
)

// MaxInside is how many messages a request may have inside of it: its token ids are one each.
const MaxInside = MaxTokenIDs + 1<<16

// Wire refuses an encoded d that has more than MaxInside messages inside of it, before it is decoded: an empty one takes 2
// bytes here and a hundred there. An encoding that is broken is left to the decoder.
func Wire(b []byte, d protoreflect.MessageDescriptor) error {
	left := MaxInside
	if !fits(b, d, 2*maxDepth, &left) { // an entry of a map is a level here, and none in known
		return apierr.Malformed("The request has more than %d messages inside of it, or they are nested too deep.", MaxInside)
	}
	return nil
}

func fits(b []byte, d protoreflect.MessageDescriptor, depth int, left *int) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return true
		}
		value := b[:n]
		b = b[n:]
		f := d.Fields().ByNumber(num)
		if typ != protowire.BytesType || f == nil || f.Message() == nil {
			continue
		}
		if *left--; *left < 0 || depth == 0 {
			return false
		}
		if inner, n := protowire.ConsumeBytes(value); n >= 0 && !fits(inner, f.Message(), depth-1, left) {
			return false
		}
	}
	return true
}
