package replay

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Seen is one replay that has ended. All but ids and counts are digests.
type Seen struct {
	Receipt     string    `json:"receipt"`
	At          time.Time `json:"at"`
	Pair        string    `json:"pair"`      // that answered the tenant
	Elsewhere   string    `json:"elsewhere"` // the decode worker that ran it again
	Rows        uint32    `json:"rows"`      // that were moved for it: 0, decode computed all
	Result      Result    `json:"result"`
	Prompt      int       `json:"prompt_tokens"`
	New         uint32    `json:"completion_tokens"`
	FirstOutput string    `json:"first_output_digest"`
	Output      string    `json:"output_digest"`
	FirstLogits string    `json:"first_logit_digest"`
	Logits      string    `json:"logit_digest"`
}

// kept is how many replays are remembered.
const kept = 1000

type ring struct {
	mu   sync.Mutex
	last []Seen
}

func (r *ring) add(s Seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == kept {
		r.last = append(r.last[:0], r.last[1:]...)
	}
	r.last = append(r.last, s)
}

// ServeHTTP is for the admin port: the last replays, the oldest first, and what waits.
func (a *Auditor) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	jobs, bytes := a.Waiting()
	a.ring.mu.Lock()
	last := append([]Seen{}, a.ring.last...)
	a.ring.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"replays": last, "waiting": jobs, "waiting_bytes": bytes}) // a client that is gone is no error of ours
}
