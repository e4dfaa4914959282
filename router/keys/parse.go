package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"go.yaml.in/yaml/v3"

	"leasehold.dev/mesh/name"
	"leasehold.dev/protos/errs"
)

// Tenant is who a request is for, and its limits.
type Tenant struct {
	Name          string
	MaxConcurrent int  // requests at once; 0: no limit here
	Canary        bool // the operator's own: its requests may name the pair of workers to go through
}

type entry struct {
	digest [sha256.Size]byte
	tenant *Tenant
}

type file struct {
	Keys []struct {
		Tenant string `yaml:"tenant"`
		SHA256 string `yaml:"sha256"`
	} `yaml:"keys"`
	Tenants map[string]struct {
		MaxConcurrent int  `yaml:"max_concurrent"`
		Canary        bool `yaml:"canary"`
	} `yaml:"tenants"`
}

// parse reads a key file. An unknown field, a bad name, digest or limit, a repeated digest, a limit of a tenant without
// keys, and a file without any key are Invalid.
func parse(b []byte) ([]entry, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	var f file
	if err := dec.Decode(&f); err != nil {
		return nil, errs.New(errs.Invalid, "key file: not YAML or JSON of the expected shape: %w", err)
	}
	var out []entry
	tenants, digests := map[string]*Tenant{}, map[[sha256.Size]byte]bool{}
	for i, k := range f.Keys {
		if err := name.Check("tenant", k.Tenant); err != nil {
			return nil, errs.New(errs.Invalid, "key file: key %d: %w", i, err)
		}
		digest, err := hex.DecodeString(k.SHA256)
		if err != nil || len(digest) != sha256.Size {
			return nil, errs.New(errs.Invalid, "key file: key %d has no SHA-256 in hex (%d digits)", i, 2*sha256.Size)
		}
		if tenants[k.Tenant] == nil {
			tenants[k.Tenant] = &Tenant{Name: k.Tenant}
		}
		e := entry{[sha256.Size]byte(digest), tenants[k.Tenant]}
		if digests[e.digest] {
			return nil, errs.New(errs.Invalid, "key file: key %d is there twice", i)
		}
		digests[e.digest] = true
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, errs.New(errs.Invalid, "key file: it has no key")
	}
	for who, limits := range f.Tenants {
		if tenants[who] == nil || limits.MaxConcurrent < 0 {
			return nil, errs.New(errs.Invalid, "key file: limits of a tenant without a key, or below 0: %.63q, %d", who, limits.MaxConcurrent)
		}
		tenants[who].MaxConcurrent, tenants[who].Canary = limits.MaxConcurrent, limits.Canary
	}
	return out, nil
}
