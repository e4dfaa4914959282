package replay

import (
	"slices"
	"time"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
)

// Pair is where an answer came from. It has the brokers' instances: after a restart nothing is verified.
type Pair struct{ Prefill, Decode, PrefillInstance, DecodeInstance string }

// Job is a request to run again, with what it gave the first time. It is not changed.
type Job struct {
	Receipt  string // id
	Tenant   string
	IDs      []int32
	Sampling *decodev1.Sampling
	MaxNew   uint32 // as admitted
	New      uint32 // tokens that came
	Numerics string
	Pair     Pair
	Output   []byte // digests
	Logits   []byte
}

// Tokens is what the request and its replay cost.
func (j *Job) Tokens() uint64 { return uint64(len(j.IDs)) + uint64(j.New) }

// size is what a waiting job takes.
func (j *Job) size() int64 {
	n := int64(512 + 4*len(j.IDs) + 16*len(j.Sampling.GetLogitBias()))
	for _, s := range j.Sampling.GetStop() {
		n += int64(len(s))
	}
	return n
}

// Policy says how much is run again.
type Policy struct {
	Share  float64 // of requests that are sampled
	Budget float64 // most tokens of sampled replays, as a share of the tokens served; 0: nothing is run again at all
	Bytes  int64   // most that waiting jobs take
}

const (
	longest   = 0.9     // of the longest verified: from there on always
	burst     = 100_000 // most tokens of budget that are saved up
	firstWait = 250 * time.Millisecond
	lastWait  = 30 * time.Second
	attempts  = 3    // of one job that was lost
	maxPairs  = 4096 // whose longest is remembered; the one least recently verified is forgotten first
)

// Reason is why a job was taken, or given up. The set is closed: it is a metric label.
type Reason string

// The reasons.
const (
	Longest  Reason = "longest"
	Sampled  Reason = "sampled"
	Full     Reason = "full"      // no room to wait
	NoWorker Reason = "no_worker" // none may run it
	Lost     Reason = "lost"      // the worker went away, each time
)

type item struct {
	job      *Job
	why      Reason
	attempts int
}

type mark struct {
	tokens int
	at     uint64 // of the core's count of verifications
}

// Core decides. It has no clock, no I/O and no goroutine: chance and time come in with events, and what it returns is
// to be done by the caller.
type Core struct {
	policy   Policy
	balance  float64
	verified map[Pair]mark
	count    uint64
	queue    []*item // the longest before the sampled, each in order
	bytes    int64
	running  *item
	wait     time.Duration
	notNow   time.Time
}

// NewCore starts with nothing verified and nothing to spend.
func NewCore(p Policy) *Core { return &Core{policy: p, verified: map[Pair]mark{}, wait: firstWait} }

// Drop is a job that is given up.
type Drop struct {
	Job *Job
	Why Reason
}

// Finished says that a request of a tenant has finished; draw is a random number of [0, 1). taken is empty when it is
// not to be run again.
func (c *Core) Finished(j *Job, draw float64) (taken Reason, dropped []Drop) {
	if c.policy.Budget <= 0 {
		return "", nil
	}
	c.balance = min(burst, c.balance+c.policy.Budget*float64(j.Tokens()))
	switch {
	case float64(len(j.IDs)) > longest*float64(c.verified[j.Pair].tokens):
		taken = Longest
	case draw < c.policy.Share && c.balance > 0:
		c.balance -= float64(j.Tokens())
		taken = Sampled
	default:
		return "", nil
	}
	return taken, c.put(&item{job: j, why: taken})
}

// put queues it, and makes room where it may: a sampled job never pushes out another.
func (c *Core) put(it *item) (dropped []Drop) {
	for it.why == Longest && c.bytes+it.job.size() > c.policy.Bytes {
		last := len(c.queue) - 1
		if last < 0 || c.queue[last].why != Sampled {
			break
		}
		dropped = append(dropped, c.give(c.take(last), Full))
	}
	if c.bytes+it.job.size() > c.policy.Bytes {
		return append(dropped, c.give(it, Full))
	}
	at := len(c.queue)
	if it.why == Longest {
		if at = slices.IndexFunc(c.queue, func(o *item) bool { return o.why == Sampled }); at < 0 {
			at = len(c.queue)
		}
	}
	c.queue = slices.Insert(c.queue, at, it)
	c.bytes += it.job.size()
	return dropped
}

func (c *Core) take(i int) *item {
	it := c.queue[i]
	c.queue = slices.Delete(c.queue, i, i+1)
	c.bytes -= it.job.size()
	return it
}

// give gives a job up; what it did not spend is there for another.
func (c *Core) give(it *item, why Reason) Drop {
	if it.why == Sampled {
		c.balance = min(burst, c.balance+float64(it.job.Tokens()))
	}
	return Drop{it.job, why}
}

// Next is the job to start now, or nil and the time to look again; zero: at the next event.
func (c *Core) Next(now time.Time) (*Job, time.Time) {
	if c.running != nil || len(c.queue) == 0 {
		return nil, time.Time{}
	}
	if now.Before(c.notNow) {
		return nil, c.notNow
	}
	c.running = c.take(0)
	return c.running.job, time.Time{}
}

// Result is what came of the job that Next returned.
type Result string

// The results. The set is closed: it is a metric label.
const (
	Equal     Result = "equal"
	Different Result = "different"
	Broken    Result = "broken" // a check failed while it ran again: an incident as well
	Busy      Result = "busy"   // tenants need the worker: it waits
	Away      Result = "away"   // the worker was lost: it is tried again
	Nobody    Result = "nobody" // no worker may run it
)

// Ended takes the running job's result. Busy and Away put it back and double the wait.
func (c *Core) Ended(now time.Time, r Result) (dropped []Drop) {
	it := c.running
	if it == nil {
		return nil
	}
	c.running = nil
	switch r {
	case Equal:
		c.verify(it.job)
	case Nobody:
		return []Drop{c.give(it, NoWorker)}
	case Busy, Away:
		if r == Away {
			if it.attempts++; it.attempts >= attempts {
				return []Drop{c.give(it, Lost)}
			}
		}
		c.notNow, c.wait = now.Add(c.wait), min(lastWait, 2*c.wait)
		return c.put(it) // behind the others of its kind: what it lacks may be its tenant's alone
	}
	c.wait = firstWait
	return nil
}

func (c *Core) verify(j *Job) {
	c.count++
	m, known := c.verified[j.Pair]
	if !known && len(c.verified) >= maxPairs {
		var oldest Pair
		at := c.count
		for p, o := range c.verified {
			if o.at < at {
				oldest, at = p, o.at
			}
		}
		delete(c.verified, oldest)
	}
	c.verified[j.Pair] = mark{max(m.tokens, len(j.IDs)), c.count}
}

// Waiting is what is queued.
func (c *Core) Waiting() (jobs int, bytes int64) { return len(c.queue), c.bytes }
