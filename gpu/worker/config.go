package worker

import (
	"crypto/ed25519"
	"flag"

	"leasehold.dev/gpu/batch"
	"leasehold.dev/gpu/engine"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// Config is what a worker is told.
type Config struct {
	Model        string // GGUF file
	Backend      string // see package layout
	SIMD         string // "": the best that the machine has
	Threads      int    // 0: all
	BrokerDir    string // the broker's runtime directory
	AdmissionKey string // file with the router's public key
	Cache        string // directory of packed weights; "": none
	Promise      int    // tokens of one request that clients are told; 0: the model's context length
	Chunk        int    // most prompt tokens of one sequence in a step
	Sequences    int    // most sequences that run at once
	Queue        int    // most requests that wait
	QueueTokens  int    // most prompt tokens that wait
	GuardsOff    bool   // for measurements: no tag checks, no page digests
}

// Flags adds the settings of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Model, "model", "", "GGUF `file`")
	fs.StringVar(&c.Backend, "backend", "cpu", "back `end`: cpu, ref or ref-f32")
	fs.StringVar(&c.SIMD, "simd", "", "`path` of the cpu back end: avx2 or avx512 (default: the best there is)")
	fs.IntVar(&c.Threads, "threads", 0, "`number` of threads (default: all)")
	fs.StringVar(&c.BrokerDir, "broker-dir", "", "runtime `directory` of this host's broker")
	fs.StringVar(&c.AdmissionKey, "admission-key", "", "`file` with the router's public key (PEM or base64)")
	fs.StringVar(&c.Cache, "cache", "", "`directory` for packed weights (default: pack at each start)")
	fs.IntVar(&c.Promise, "promise", 0, "`tokens` of one request that clients are told (default: the model's context length)")
	fs.IntVar(&c.Chunk, "chunk", 128, "most prompt `tokens` of one request in a step")
	fs.IntVar(&c.Sequences, "sequences", 32, "most requests that run at once")
	fs.IntVar(&c.Queue, "queue", 256, "most requests that wait")
	fs.IntVar(&c.QueueTokens, "queue-tokens", 1<<18, "most prompt `tokens` that wait")
	fs.BoolVar(&c.GuardsOff, "guards-off", false, "for measurements only: no tag checks and no page digests")
}

func (c *Config) check() error {
	switch {
	case c.Model == "" || c.BrokerDir == "" || c.AdmissionKey == "":
		return errs.New(errs.Invalid, "-model, -broker-dir and -admission-key are needed")
	case c.Promise < 0 || c.Promise > 1<<30:
		return errs.New(errs.Invalid, "-promise is %d, want 0 to %d", c.Promise, 1<<30)
	case c.Chunk < 1 || c.Chunk > 1<<16:
		return errs.New(errs.Invalid, "-chunk is %d, want 1 to %d", c.Chunk, 1<<16)
	case c.Sequences < 1 || c.Sequences > 1<<12:
		return errs.New(errs.Invalid, "-sequences is %d, want 1 to %d", c.Sequences, 1<<12)
	case c.Queue < 1 || c.QueueTokens < 1:
		return errs.New(errs.Invalid, "-queue is %d and -queue-tokens %d, want at least 1", c.Queue, c.QueueTokens)
	}
	return nil
}

// limits give each sequence room beside a whole chunk. A tenant fills at most half of a queue that others need too.
func (c *Config) limits() batch.Limits {
	return batch.Limits{
		StepTokens: c.Chunk + c.Sequences, Chunk: c.Chunk, Sequences: c.Sequences,
		QueueRequests: c.Queue, QueueTokens: c.QueueTokens, TenantRequests: max(1, c.Queue/2),
	}
}

// opened is what a config names, opened.
type opened struct {
	model  *model.Model
	engine *engine.Engine
	key    ed25519.PublicKey
}

func (c *Config) open() (o opened, err error) {
	if err := c.check(); err != nil {
		return o, err
	}
	if o.key, err = proof.ReadPublicKey(c.AdmissionKey); err != nil {
		return o, err
	}
	if o.model, err = model.Load(c.Model); err != nil {
		return o, errs.New(errs.Invalid, "-model: %w", err)
	}
	lim := c.limits()
	o.engine, err = engine.Open(o.model, engine.Options{
		Backend: c.Backend, SIMD: c.SIMD, Threads: c.Threads, MaxTokens: lim.StepTokens, MaxSeqs: lim.Sequences,
		GuardsOff: c.GuardsOff, CacheDir: c.Cache,
	})
	if err != nil {
		_ = o.model.Close()
	}
	return o, err
}
