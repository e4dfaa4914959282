package fault

// Guard is a check that can be turned off by itself.
type Guard string

// The guards.
const (
	LimitRouter  Guard = "guard:limit-router"  // a prompt over the pair's limit is refused before anything is reserved
	LimitPrefill Guard = "guard:limit-prefill" // P refuses what is over its own limit, and a promise over it
	LimitDecode  Guard = "guard:limit-decode"  // D likewise
	Counts       Guard = "guard:counts"        // rows, pages and places are compared with the receiver's expectation
	Digest       Guard = "guard:digest"        // each page's digest is compared with what lies in memory
	MAC          Guard = "guard:mac"           // root and MAC of a Completion
	PromptDigest Guard = "guard:prompt-digest" // the ids are the admission's
	Epoch        Guard = "guard:epoch"         // instance and epoch are the present ones
	TagRead      Guard = "guard:tag-read"      // kernels compare the tag of a page that they read
	TagWrite     Guard = "guard:tag-write"     // kernels compare the tag of a page that they append to
	Nobody       Guard = "guard:nobody"        // a destination page has no owner's tag before it was verified
	Length       Guard = "guard:length"        // the engine, not the plan, owns a sequence's length
	Zero         Guard = "guard:zero"          // a page is cleared before it is free
	Quarantine   Guard = "guard:quarantine"    // a page is not free before nobody is left who could touch it
	Verdict      Guard = "guard:verdict"       // the router compares both halves' verdicts
)

// Guards is all of them.
func Guards() []Guard {
	return []Guard{LimitRouter, LimitPrefill, LimitDecode, Counts, Digest, MAC, PromptDigest, Epoch, TagRead, TagWrite, Nobody,
		Length, Zero, Quarantine, Verdict}
}

// Point is a place in the code where something can go wrong.
type Point string

// The points, and the actions that they know beside delay, hold, pause and kill.
const (
	MoverPage     Point = "point:mover/page"     // a sealed page goes to the mover: drop, duplicate, reorder
	MoverRead     Point = "point:mover/read"     // bytes of a page are copied, by the sender or, from shared memory, by the receiver, or have just been received: corrupt, truncate (the rest is zero)
	MoverWire     Point = "point:mover/wire"     // a message of a Pull goes out: drop, truncate, duplicate, reorder, corrupt (the message that names a page: its bit n)
	MoverComplete Point = "point:mover/complete" // the sealed Completion goes out: drop, corrupt (the MAC), truncate (no MAC), stale-epoch (without a new MAC)
	MoverDrained  Point = "point:mover/drained"  // a mover process tells that a transfer is drained: drop
	MoverLanded   Point = "point:mover/landed"   // a mover process tells that a page has landed: drop, corrupt (its digest)
	MoverOffer    Point = "point:mover/offer"    // a mover process offers a page: drop, duplicate, truncate (as the next place), corrupt (its length)
	// The Completion is about to be sealed: truncate (a page fewer), corrupt (a digest), reorder (two digests), duplicate
	// (a digest twice), stale-epoch, drop (all digests).
	Completion Point = "point:transfer/completion"

	BrokerReserve  Point = "point:broker/reserve"  // a lease is asked for
	BrokerLanded   Point = "point:broker/landed"   // a page has arrived: late-write (into it, while STAGED), drop (the report)
	BrokerRead     Point = "point:broker/read"     // a page is read to be sent: reorder (another lease's page is read), corrupt (and its digest is in the Completion)
	BrokerSealed   Point = "point:broker/sealed"   // a source lease was finished: late-write (into its first page), reorder (its first two pages)
	BrokerVerify   Point = "point:broker/verify"   // the destination's pages are to be verified
	BrokerVisit    Point = "point:broker/visit"    // another broker's pool is mapped for a Pull: drop (the attach socket is closed)
	BrokerRetired  Point = "point:broker/retired"  // a worker's proof comes in: drop
	BrokerDrained  Point = "point:broker/drained"  // a mover's proof comes in: drop
	BrokerClear    Point = "point:broker/clear"    // a page is to be cleared: corrupt (filled with NaN before)
	BrokerCleared  Point = "point:broker/cleared"  // a page was cleared: late-write (into it)
	BrokerDeadline Point = "point:broker/deadline" // a lease's end is set: truncate (to n milliseconds from now)

	ClientEpoch   Point = "point:client/epoch"   // a worker speaks of its lease: stale-epoch
	ClientRevoked Point = "point:client/revoked" // a worker hears that its lease is over: drop
	WorkerAttach  Point = "point:worker/attach"  // a worker is about to attach
	RunnerLoop    Point = "point:runner/loop"    // the loop comes round
	RunnerStep    Point = "point:runner/step"    // a step is about to run: corrupt (the plan names a sequence n rows longer)
	EngineAppend  Point = "point:engine/append"  // a step is about to run: duplicate (the first page that it appends to is kept), late-write (what was kept is written again)
	PrefillAdmit  Point = "point:prefill/admit"  // P takes a request: truncate (to one computed token: the refusal that borrows a success)
	PrefillSeal   Point = "point:prefill/seal"   // P hands over pages: drop, duplicate, corrupt (a digest)
	PrefillFinish Point = "point:prefill/finish" // between P's last chunk and its end
	PrefillAnswer Point = "point:prefill/answer" // P's verdict: truncate (fewer rows), corrupt (the root), stale-epoch, reorder (a thousandth of the time), drop
	DecodeOwned   Point = "point:decode/owned"   // D waits for its pages: drop (it does not wait)
	DecodeFed     Point = "point:decode/fed"     // D takes over verified rows: truncate (one id more than the prompt has), corrupt (another id)
	DecodeAnswer  Point = "point:decode/answer"  // D's verdict: truncate, corrupt, stale-epoch, drop
	DecodeToken   Point = "point:decode/token"   // a token goes to the router: drop, duplicate
	RouterAdmit   Point = "point:router/admit"   // an admission is about to be signed: corrupt (the prompt digest)
	RouterAnswer  Point = "point:router/answer"  // both verdicts are there
)

// Points is all of them.
func Points() []Point {
	return []Point{MoverPage, MoverRead, MoverWire, MoverComplete, MoverDrained, MoverLanded, MoverOffer, Completion, BrokerReserve, BrokerLanded, BrokerRead, BrokerSealed,
		BrokerVerify, BrokerVisit, BrokerRetired, BrokerDrained, BrokerClear, BrokerCleared, BrokerDeadline, ClientEpoch, ClientRevoked,
		WorkerAttach, RunnerLoop, RunnerStep, EngineAppend, PrefillAdmit, PrefillSeal, PrefillFinish, PrefillAnswer, DecodeOwned, DecodeFed,
		DecodeAnswer, DecodeToken, RouterAdmit, RouterAnswer}
}

// Action is what goes wrong at a point.
type Action uint8

// The actions. None is the zero value: nothing is armed. Delay, Hold, Pause and Kill are carried out by [At] itself, which
// then returns None.
const (
	None       Action = iota
	Delay             // wait
	Hold              // wait until the point is disarmed
	Pause             // SIGSTOP to the own process
	Kill              // SIGKILL to the own process
	Drop              // it is lost
	Truncate          // a part of it is lost
	Duplicate         // it comes twice
	Reorder           // it comes after the next
	Corrupt           // it comes with other bits
	StaleEpoch        // it says an epoch of before
	LateWrite         // somebody writes when it is too late
)
