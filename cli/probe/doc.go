// Package probe asks a mesh that serves the canary model for markers back, and knows what each answer must be.
//
// [Gate] and [Rest] say what to ask of one pair of workers; [Judge] compares an answer with what it must be. Both are
// pure. [Client] asks over REST, on the same path as a tenant's request, but through the pair that it names: it needs the
// key of a tenant that the router's key file marks as a canary.
//
// An error that was expected and did not come is a failure like a wrong answer. No prompt and no answer is printed or
// kept: what comes out is counts.
package probe
