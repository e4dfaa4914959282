package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"go.yaml.in/yaml/v3"

	"leasehold.dev/protos/errs"
)

// Tenant is who a request is for, and its limits.
type Tenant struct {
	Name          string
	MaxConcurrent int // requests at once; 0: no limit here
}

type entry struct {
	digest [sha256.Size]byte
	tenant *Tenant
}

type file struct {
	Tenants []struct {
		Name          string   `yaml:"name"`
		Keys          []string `yaml:"keys"`
		MaxConcurrent int      `yaml:"max_concurrent"`
	} `yaml:"tenants"`
}

var name = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// parse reads a key file. An unknown field, a bad or repeated name, digest or limit, and a file without any key are
// Invalid.
func parse(b []byte) ([]entry, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	var f file
	if err := dec.Decode(&f); err != nil {
		return nil, errs.New(errs.Invalid, "key file: not YAML or JSON of the expected shape: %w", err)
	}
	var out []entry
	names, digests := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, t := range f.Tenants {
		switch {
		case !name.MatchString(t.Name):
			return nil, errs.New(errs.Invalid, "key file: tenant %d: the name must match %s", i, name)
		case names[t.Name]:
			return nil, errs.New(errs.Invalid, "key file: tenant %d: the name is there twice", i)
		case t.MaxConcurrent < 0:
			return nil, errs.New(errs.Invalid, "key file: tenant %d: max_concurrent is %d", i, t.MaxConcurrent)
		}
		names[t.Name] = true
		tenant := &Tenant{t.Name, t.MaxConcurrent}
		for j, k := range t.Keys {
			e := entry{tenant: tenant}
			if n, err := hex.Decode(e.digest[:], []byte(k)[:min(len(k), 2*sha256.Size)]); err != nil || n != sha256.Size || len(k) != 2*sha256.Size {
				return nil, errs.New(errs.Invalid, "key file: tenant %d: key %d is no SHA-256 in hex (64 digits)", i, j)
			}
			if digests[e.digest] {
				return nil, errs.New(errs.Invalid, "key file: tenant %d: key %d is there twice", i, j)
			}
			digests[e.digest] = true
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, errs.New(errs.Invalid, "key file: it has %d tenants and no key", len(f.Tenants))
	}
	return out, nil
}
