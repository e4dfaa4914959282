package attach

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// Protocol is the version of the two messages and of everything that is shared through the descriptors.
const Protocol = 1

// maxMessage bounds either message.
const maxMessage = 4096

// Request is what a process says of itself: a worker, which gets the pool and the tags, a mover, which does too, or a reader.
type Request struct {
	Protocol int    `json:"protocol"`
	Worker   string `json:"worker"` // instance id of a worker, or name of the broker that reads
	// Reader is the instance of a broker of this host that reads pages of Pulls by shared memory. It gets the pool
	// read-only, and no tags.
	Reader []byte `json:"reader,omitempty"`
	// Mover is the instance of a mover process of this broker. It gets what a worker gets, and drives no lease.
	Mover []byte `json:"mover,omitempty"`
	Want  Want   `json:"want"`
}

// Want is what a worker must find at its broker before either touches a page. Zero fields are not known to the worker,
// and match anything.
type Want struct {
	LayoutHash        []byte `json:"layout_hash,omitempty"`
	ModelRevision     []byte `json:"model_revision,omitempty"`
	TokenizerRevision []byte `json:"tokenizer_revision,omitempty"`
	NumericsClass     string `json:"numerics_class,omitempty"`
	PageBytes         uint64 `json:"page_bytes,omitempty"`
}

// Match compares w with what the broker would offer. The error has both values.
func (w Want) Match(o Offer) error {
	differ := func(what, want, have string) error {
		return errs.New(errs.Invalid, "%s is %s, broker %s has %s", what, want, o.Broker, have)
	}
	for _, c := range []struct {
		what       string
		want, have []byte
	}{
		{"layout hash", w.LayoutHash, o.LayoutHash},
		{"model revision", w.ModelRevision, o.ModelRevision},
		{"tokenizer revision", w.TokenizerRevision, o.TokenizerRevision},
	} {
		if len(c.want) > 0 && !bytes.Equal(c.want, c.have) {
			return differ(c.what, fmt.Sprintf("%x", c.want), fmt.Sprintf("%x", c.have))
		}
	}
	if w.NumericsClass != "" && w.NumericsClass != o.NumericsClass {
		return differ("numerics class", w.NumericsClass, o.NumericsClass)
	}
	if w.PageBytes != 0 && w.PageBytes != o.PageBytes {
		return differ("page size", fmt.Sprint(w.PageBytes), fmt.Sprint(o.PageBytes))
	}
	return nil
}

// Offer is what the broker answers. An Offer with an Error has no descriptors, and the connection ends.
type Offer struct {
	Protocol          int    `json:"protocol"`
	Broker            string `json:"broker"`
	Instance          []byte `json:"instance"`
	Epoch             uint64 `json:"epoch"`
	Attach            []byte `json:"attach"` // a worker's or mover's secret token: names its handle in every call
	LayoutHash        []byte `json:"layout_hash"`
	ModelRevision     []byte `json:"model_revision"`
	TokenizerRevision []byte `json:"tokenizer_revision"`
	NumericsClass     string `json:"numerics_class"`
	Pages             uint32 `json:"pages"`
	PageBytes         uint64 `json:"page_bytes"`
	// Host is equal for brokers that can map each other's pools; empty: with none. Movers are the names of those by which
	// the broker moves pages from and to others: shm, ucx, grpc.
	Host   string   `json:"host,omitempty"`
	Fabric string   `json:"fabric,omitempty"` // equal for brokers whose mover processes reach each other; empty: none
	Movers []string `json:"movers,omitempty"`

	Error string `json:"error,omitempty"`
	Kind  uint8  `json:"kind,omitempty"` // of the Error: package errs
}

func (r Request) check() error {
	if r.Protocol != Protocol {
		return errs.New(errs.Invalid, "attach: protocol %d, want %d", r.Protocol, Protocol)
	}
	if r.Worker == "" || len(r.Worker) > 128 {
		return errs.New(errs.Invalid, "attach: worker id of %d bytes, want 1 to 128", len(r.Worker))
	}
	if r.Reader != nil && len(r.Reader) != proof.IDSize {
		return errs.New(errs.Invalid, "attach: reader instance of %d bytes, want %d", len(r.Reader), proof.IDSize)
	}
	if r.Mover != nil && (len(r.Mover) != proof.IDSize || r.Reader != nil) {
		return errs.New(errs.Invalid, "attach: mover instance of %d bytes, want %d, and not a reader's", len(r.Mover), proof.IDSize)
	}
	return nil
}

func (o Offer) check() error {
	switch {
	case o.Error != "":
		return errs.New(errs.KindOfCode(errs.Kind(o.Kind).Code()), "attach: broker: %s", o.Error) // one of no kind is a bug
	case o.Protocol != Protocol:
		return errs.New(errs.Invalid, "attach: broker's protocol %d, want %d", o.Protocol, Protocol)
	case len(o.Instance) == 0 || len(o.LayoutHash) == 0 || len(o.ModelRevision) == 0:
		return errs.New(errs.Invalid, "attach: the offer lacks instance, layout hash or model revision")
	case o.Pages == 0 || o.PageBytes == 0:
		return errs.New(errs.Invalid, "attach: offer of %d pages of %d bytes", o.Pages, o.PageBytes)
	}
	return nil
}

func send(c *net.UnixConn, v any, files ...*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return errs.New(errs.Invalid, "attach: message of %d bytes, at most %d", len(b), maxMessage)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	n, oobn, err := c.WriteMsgUnix(b, oob, nil)
	if err != nil {
		return errs.New(errs.Unavailable, "attach: send: %w", err)
	}
	if n != len(b) || oobn != len(oob) {
		return errs.New(errs.Unavailable, "attach: sent %d of %d bytes, %d of %d of control", n, len(b), oobn, len(oob))
	}
	return nil
}

// maxFiles is how many descriptors a message may carry.
const maxFiles = 2

// receive reads one message and its descriptors; on error none stays open.
func receive(c *net.UnixConn, v any) ([]*os.File, error) {
	b := make([]byte, maxMessage+1)
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "attach: receive: %w", err)
	}
	got, err := descriptors(oob[:oobn])
	switch {
	case err != nil:
	case n > maxMessage || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errs.New(errs.Invalid, "attach: message of over %d bytes, or too many descriptors", maxMessage)
	default:
		err = errs.Mark(json.Unmarshal(b[:n], v), errs.Invalid)
	}
	if err != nil {
		closeAll(got)
		return nil, err
	}
	return got, nil
}

func descriptors(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, errs.New(errs.Invalid, "attach: control message: %w", err)
	}
	var out []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			closeAll(out)
			return nil, errs.New(errs.Invalid, "attach: control message: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			out = append(out, os.NewFile(uintptr(fd), "attached"))
		}
	}
	return out, nil
}

func closeAll(fs []*os.File) {
	for _, f := range fs {
		f.Close()
	}
}
