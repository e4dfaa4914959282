package lease

import "fmt"

// State of a page, and of a lease, whose state is that of its least advanced page.
type State uint8

// The states; doc.go has the ways between them.
const (
	Free State = iota
	Reserved
	Writing
	Sealed
	Staged
	Verifying
	Owned
	Releasing
	Quarantine
	Zeroing

	States = int(Zeroing) + 1
)

var stateNames = [States]string{"free", "reserved", "writing", "sealed", "staged", "verifying", "owned", "releasing",
	"quarantine", "zeroing"}

// String is the state's name in metrics and logs.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ended says that a page or lease in state s is nobody's to use any more.
func (s State) ended() bool { return s == Releasing || s == Quarantine || s == Zeroing }

// Role says which side of an admission a lease is for.
type Role uint8

// The roles. The zero value is none.
const (
	Solo        Role = iota + 1 // computes the prompt and the answer
	Destination                 // is given the prompt's pages by a transfer
	Source                      // computes the prompt's pages for a transfer
)

var roleNames = [...]string{Solo: "solo", Destination: "destination", Source: "source"}

// String is the role's name in metrics and logs.
func (r Role) String() string {
	if r >= Solo && int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}
