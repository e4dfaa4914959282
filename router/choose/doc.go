// Package choose decides, from what workers say of themselves, what fits and which pair serves a request.
//
// It is pure: no clock, no I/O; chance comes in as a function. The two questions are kept apart. [Limits] answers
// whether any ready pair could hold a request at all (else it is refused before anything is reserved); [Plan] picks
// the pair, by two random candidates for each half and the one of the two with more head-room.
package choose
