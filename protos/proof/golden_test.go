package proof

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// golden.json was computed by a second implementation (Python: hashlib, hmac, and the protobuf encoding by hand). A
// difference breaks every mesh that runs two versions: do not regenerate, make a new version of the context strings.
type golden struct {
	Secret        string
	PromptDigests []struct {
		Nonce, Tenant, Revision, Want string
		IDs                           []int32
	} `json:"prompt_digests"`
	Completions []struct {
		Admission, Lease, Instance, Destination, Tenant, Revision, Layout, Prompt string
		Epoch                                                                     uint64
		From, Rows, Pages                                                         uint32
		Digests                                                                   []string
		Root                                                                      string `json:"want_root"`
		MAC                                                                       string `json:"want_mac"`
	}
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.PromptDigests) == 0 || len(g.Completions) == 0 {
		t.Fatal("golden.json is empty")
	}
	return g
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenPromptDigests(t *testing.T) {
	for i, v := range readGolden(t).PromptDigests {
		got := PromptDigest(unhex(t, v.Nonce), v.Tenant, unhex(t, v.Revision), v.IDs)
		if hex.EncodeToString(got) != v.Want {
			t.Errorf("vector %d: PromptDigest of %d ids = %x, want %s", i, len(v.IDs), got, v.Want)
		}
	}
}

func TestGoldenCompletions(t *testing.T) {
	g := readGolden(t)
	secret := unhex(t, g.Secret)
	for i, v := range g.Completions {
		c := &brokerv1.Completion{AdmissionId: unhex(t, v.Admission), Lease: unhex(t, v.Lease), Instance: unhex(t, v.Instance), Epoch: v.Epoch,
			DestinationInstance: unhex(t, v.Destination), Tenant: v.Tenant, ModelRevision: unhex(t, v.Revision), LayoutHash: unhex(t, v.Layout),
			FromToken: v.From, Rows: v.Rows, Pages: v.Pages, PromptDigest: unhex(t, v.Prompt)}
		for _, d := range v.Digests {
			c.Digests = append(c.Digests, unhex(t, d))
		}
		if err := Seal(secret, c); err != nil {
			t.Fatal(err)
		}
		if hex.EncodeToString(c.Root) != v.Root || hex.EncodeToString(c.Mac) != v.MAC {
			t.Errorf("vector %d: root %x and MAC %x, want %s and %s", i, c.Root, c.Mac, v.Root, v.MAC)
		}
		if err := Check(secret, c); err != nil {
			t.Errorf("vector %d: Check = %v", i, err)
		}
	}
}
