package tenants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario/stagetest"
)

// TestReceiptsAreTheirTenantsAlone is T3's last part: B asks for A's receipt and reports it, and hears what it hears of one
// that never was. A's report has the request run again on the real mesh.
func TestReceiptsAreTheirTenantsAlone(t *testing.T) {
	st := stagetest.Open(t, func(c *local.Config) { c.Tenants = map[string]string{"a": local.NewKey(), "b": local.NewKey()} })
	send := func(method, path, tenant string, body []byte) (int, http.Header, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, st.URL()+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+st.Tenants[tenant])
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header, string(b)
	}
	ask := ask(1)
	ask["model"] = st.Loaded.Name
	body, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	code, header, answer := send("POST", "/v1/chat/completions", "a", body)
	id := header.Get("X-Leasehold-Receipt")
	if code != 200 || len(id) != 32 {
		t.Fatalf("%d, receipt %q: %s", code, id, answer)
	}
	for _, c := range []struct{ method, path string }{{"GET", "/v1/receipts/%s"}, {"POST", "/v1/receipts/%s/report"}} {
		code, _, theirs := send(c.method, fmt.Sprintf(c.path, id), "b", nil)
		_, _, nobodys := send(c.method, fmt.Sprintf(c.path, strings.Repeat("0", 32)), "b", nil)
		if code != 404 || theirs != nobodys {
			t.Errorf("%s of another's: %d %s; of nobody's: %s", c.method, code, theirs, nobodys)
		}
		if code, _, _ := send(c.method, fmt.Sprintf(c.path, id[:16]), "b", nil); code != 404 { // a prefix of it
			t.Errorf("%s of a prefix: %d", c.method, code)
		}
	}
	if code, _, got := send("GET", "/v1/receipts/"+id, "a", nil); code != 200 || !strings.Contains(got, `"leasehold_receipt":"ey`) {
		t.Errorf("its own: %d %s", code, got)
	}
	for _, c := range []struct{ why, body, replay string }{
		{"nothing given", "", "none"},
		{"the request", `{"chat":` + string(body) + `}`, "equal"},
		{"another request", `{"chat":` + strings.Replace(string(body), "Request 1", "Request 2", 1) + `}`, "other_request"},
	} {
		if code, _, got := send("POST", "/v1/receipts/"+id+"/report", "a", []byte(c.body)); code != 200 || !strings.Contains(got, `"replay":"`+c.replay+`"`) {
			t.Errorf("reported with %s: %d %s, want %s", c.why, code, got, c.replay)
		}
	}
	if err := st.Baseline(t.Context(), "broker-p", "broker-d"); err != nil {
		t.Error(err)
	}
}
